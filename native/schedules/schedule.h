// Schedules of the collectives of one machine: which bytes go from which rank to which other one, in which round.  They touch
// no memory and wait for nobody, so that one thread can run the parts of all ranks.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "ranks/group_call.h"

namespace peerlane {

constexpr uint64_t kLine = 64;   // bytes of a cache line; a multiple of every element

struct Span {
    uint64_t first = 0, size = 0;

    bool operator==(const Span&) const = default;
};

// One rank's view of one piece of a call.  A long call goes piece by piece, each through all rounds of the schedule.
struct CallPiece {
    const GroupCall& call;
    uint32_t rank, ranks;
    uint64_t first, size;   // of each part: the bytes from `first` on, at most `size`

    // The bytes of the part that goes from one rank to another, as this rank knows it.
    uint64_t part(uint32_t from, uint32_t to) const {
        if (!call.has_source_parts()) return call.part_size(from);
        return from == rank || !call.is_by_pairs() ? call.source_part_size(to) : call.part_size(from);
    }
    // What of a part belongs to the piece.
    Span of(uint64_t part) const {
        const uint64_t begin = std::min(first, part);
        return {begin, std::min(size, part - begin)};
    }
};

// In the first round ranks give bytes of their sources; in a second one, bytes of what they have combined.
class CollectiveSchedule {
  public:
    // Whether it can make the call.
    virtual bool serves(const GroupCall& call, uint32_t ranks) const = 0;
    virtual uint32_t rounds() const { return 1; }
    // The bytes that `from` gives to `to`, within the part that goes between the two; of itself, what a rank keeps or combines.
    virtual Span moves(const CallPiece& piece, uint32_t round, uint32_t from, uint32_t to) const = 0;
    // Whether a rank may end the round only when `peer` has begun it.  It takes bytes of no other ranks.
    virtual bool awaits(const CallPiece& piece, uint32_t round, uint32_t peer) const = 0;
    // Whether the bytes of all ranks in the first round are combined, in the order of ranks, and not stored one by one.
    virtual bool combines() const { return true; }
    // Whether all peers get the same bytes in a round.
    virtual bool gives_all_the_same(const GroupCall& call, uint32_t round) const = 0;

  protected:
    constexpr CollectiveSchedule() = default;
    ~CollectiveSchedule() = default;   // schedules have no state, and live as long as the program
};

// A schedule is a file that defines one of these, and its line in the table.  The first one that serves a call makes it.
extern const CollectiveSchedule &two_shot, &one_shot, &exchange;

const CollectiveSchedule& schedule_of(const GroupCall& call, uint32_t ranks);

}  // namespace peerlane
