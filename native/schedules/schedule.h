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

// The rounds of a schedule, and what a rank does in them.
enum class Pattern : uint8_t {
    store,              // one round: it gives bytes of its source, and stores the bytes that it gets
    combine,            // one round: it gives bytes of its source, and combines those of all ranks in the order of ranks
    combine_and_share,  // the same, and a second round: it gives all that it has combined, and stores the bytes that it gets
};

class CollectiveSchedule {
  public:
    // Whether it can make the call.
    virtual bool serves(const GroupCall& call, uint32_t ranks) const = 0;
    virtual Pattern pattern() const = 0;
    uint32_t rounds() const { return pattern() == Pattern::combine_and_share ? 2 : 1; }
    bool combines() const { return pattern() != Pattern::store; }
    // The bytes that `from` gives to `to` in round 0 or 1, within the part that goes between the two.  `from` equal to `to`:
    // the bytes of its own source or result that a rank stores or combines.
    virtual Span moves(const CallPiece& piece, uint32_t round, uint32_t from, uint32_t to) const = 0;
    // Whether this rank waits in the round until `peer` has announced it.  It must, if `peer` gives it bytes.
    virtual bool awaits(const CallPiece& piece, uint32_t round, uint32_t peer) const = 0;
    // Whether a rank gives the same bytes to all peers in the first round.
    virtual bool gives_all_the_same(const GroupCall& call) const = 0;

  protected:
    constexpr CollectiveSchedule() = default;
    ~CollectiveSchedule() = default;   // schedules have no state, and live as long as the program
};

// All schedules, in the order of choice.  The file of a schedule's name defines it.
#define PEERLANE_SCHEDULES(X) X(two_shot) X(one_shot) X(exchange)
#define PEERLANE_DECLARE_SCHEDULE(name) extern const CollectiveSchedule& name;
PEERLANE_SCHEDULES(PEERLANE_DECLARE_SCHEDULE)
#undef PEERLANE_DECLARE_SCHEDULE

// Return the first schedule that serves the call.  The last two serve all calls between them.
const CollectiveSchedule& schedule_of(const GroupCall& call, uint32_t ranks);

}  // namespace peerlane
