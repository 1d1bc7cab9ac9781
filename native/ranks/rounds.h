// Rounds that the ranks of one machine take together.  A rank tells each other one that it has begun a round, with bytes for it:
// a few in the line that it records there, more in a slot of its own memory, where the others read them.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "memory/heap.h"
#include "ranks/farewell.h"
#include "ranks/peer_memory.h"

namespace peerlane {

class Rounds {
  public:
    static constexpr uint32_t kDepth = 16;                    // lines from a rank to another one, in turns
    static constexpr uint64_t kInLine = sizeof(SignalLine::reserved);
    static constexpr uint64_t kShortSlot = uint64_t{8} << 10;   // one for each line
    static constexpr uint32_t kLongSlots = 2;

    static uint64_t bytes(uint64_t long_slot) { return kDepth * kShortSlot + kLongSlots * long_slot; }

    // The lines are held, the memory is pinned.
    struct Peer {
        uint32_t rank = 0;
        std::array<Notify*, kDepth> incoming{}, outgoing{};
        Range slots{};
        PeerMemory memory{};       // besides the slots
        uint64_t begun = 0;        // the newest round that it is known to have begun
        PeerMemory::Bytes src{}, dst{};   // its bytes and its result in a long call, where it says that they lie
        bool in_place = false;            // they are to be read there, not in a slot
        uint8_t found = 0;                // what to tell it in the last round, of where its bytes lie
        ReadHere reads_here{};            // what it has told
    };
    struct Round {
        uint64_t number, slot;         // the slot's offset
        uint64_t needed;               // the round that all others must have begun before this rank writes
    };

    // `peers`: in cyclic order from the rank behind this one.  `must_yield`: there are more ranks here than processors.
    Rounds(uint32_t rank, uint32_t size, Range slots, uint64_t long_slot, std::vector<Peer> peers, bool must_yield,
           std::shared_ptr<Farewell> farewell);
    ~Rounds();
    Rounds(const Rounds&) = delete;

    const uint32_t rank, size;
    const uint64_t long_slot;
    const bool must_yield;
    const bool is_beside;      // another rank is in this process
    const std::shared_ptr<Farewell> farewell;   // this rank takes no more rounds

    // One call at a time takes rounds.  What follows is its own.
    std::timed_mutex turn;
    std::atomic<bool> is_plain{false};   // nothing is queued
    uint64_t calls = 0;                  // how many there were, this one included
    std::vector<const char*> sources;    // room for one of each rank

    Round next(bool is_long);
    char* slot(const Round& round) const { return slots_.host + round.slot; }
    // The line of a rank that has yet to begin a round before this rank may write; null: it may.
    Notify* in_the_way(const Round& round);
    // Tell a peer that this rank has begun the round.  `word`: the call, on which all must agree; at most kInLine bytes.
    void tell(const Peer& peer, const Round& round, uint64_t word, const char* bytes, uint64_t n) const;
    // Whether a peer has begun the round of the same call.
    bool has_come(Peer& peer, const Round& round, uint64_t word) const;
    // Where its bytes are then.
    const char* in_line(const Peer& peer, const Round& round) const;
    const char* in_slot(const Peer& peer, const Round& round) const { return peer.slots.host + round.slot; }

    Peer& peer(uint32_t of) { return peers_[(of + size - rank - 1) % size]; }
    std::vector<Peer>& peers() { return peers_; }
    const std::vector<Peer>& peers() const { return peers_; }
    // The word of the call with which a peer has begun the round.
    std::optional<uint64_t> called_by(const Peer& peer, const Round& round) const;

  private:
    const Range slots_;
    std::vector<Peer> peers_;
    uint64_t number_ = 0, long_rounds_ = 0;
    std::array<uint64_t, kLongSlots> used_{};   // the last round of each long slot
};

}  // namespace peerlane
