// A barrier of many ranks by a tree: a rank waits for its children, announces itself to its parent, waits for the parent's
// answer, and answers its children.  So it needs channels to at most kFanOut + 1 ranks, however many there are.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "ranks/rounds.h"

namespace peerlane {

class BarrierTree {
  public:
    static constexpr uint32_t kFanOut = 8;

    // Among fewer ranks each one announces itself to all others, which takes one step.
    static bool serves(uint32_t ranks) { return ranks > kFanOut; }
    // The ranks whose lines a barrier uses, without this one.
    static std::vector<uint32_t> neighbours(uint32_t rank, uint32_t ranks);

    // Begin a barrier.
    void begin(Rounds& rounds) { number_ = rounds.next_barrier(); }
    // Go on as far as that is possible; the peer that this rank must wait for, null: all ranks have come.  `call`: the number of
    // the call among the group's, on which all must agree.
    Rounds::Peer* advance(Rounds& rounds, uint64_t call);
    bool has_come(const Rounds::Peer& peer, uint64_t call) const { return Rounds::barrier_call(peer, number_) == call; }
    uint64_t number() const { return number_; }
    // The word with which a peer has announced the next round, if it has made that call and not this barrier.
    std::optional<uint64_t> word_instead(const Rounds& rounds, const Rounds::Peer& peer, uint64_t call) const;

  private:
    static uint32_t parent(uint32_t rank) { return (rank - 1) / kFanOut; }
    static uint32_t first_child(uint32_t rank) { return rank * kFanOut + 1; }
    static uint32_t children(uint32_t rank, uint32_t ranks) {
        const uint32_t first = first_child(rank);
        return first < ranks ? std::min(kFanOut, ranks - first) : 0;
    }

    uint64_t number_ = 0;            // of the barrier among the group's
    uint32_t children_come_ = 0;
    bool is_announced_ = false;      // to the parent
};

}  // namespace peerlane
