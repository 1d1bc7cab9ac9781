// What the analysis finds, as plain data: the texts are made elsewhere.
#pragma once
#include <cstdint>
#include <vector>

#include "log/event.h"

namespace peerlane::check {

enum class FindingKind : uint8_t { race, lost_notify, unconsumed_notify, use_after_free, unwritten_read, relied_on_schedule };

// Which order is missing between the first event and the second one.
enum class Missing : uint8_t {
    arrival,       // a notify of the channel and stream, recorded after the first, and a wait for it before the second
    sync,          // the thread of the second must know that the stream of the first has come so far
    event,         // the stream of the second must wait for an event that the stream of the first records
    thread_order,  // two threads of one process
    relay,         // as `arrival`; but the bytes are a third rank's, which must notify the second's rank
    answer,        // a notify from the first's rank, recorded after the first, and a wait of the second's rank before the second
    meeting,       // as `answer`; but the two ranks have no channel
    fence,         // a fence of the channel
    consumption,   // the second record must come after the wait that consumes the first one
    wait,          // nobody waits for the record
    write,         // nobody wrote the bytes
    earlier_use,   // the host must use the bytes before their end
    promise,       // the order rests on a record that another record may replace
};

// An event of a process.
struct EventRef {
    static constexpr uint32_t kBody = uint32_t{1} << 31;   // no thread of the system has such a number

    uint32_t log = 0, site = 0;
    uint32_t thread = 0;                              // with kBody: the callbacks of the stream with the other bits
    log::Kind kind = log::Kind::pad;
    uint8_t op = 0;
    bool is_write = false, is_loose = false, is_delivery = false, is_fetch = false;
    uint64_t stream = 0, sequence = 0, channel = 0;   // the channel's number in its process; 0: none
    int32_t rank = -1;                                // only in a finding; -1: not known
    uint64_t event = 0;                               // its position among the events of its process
    uint64_t nth = 0;                                 // only in a finding: how often its line had run then, with this time; 0: not known
    uint64_t time_ns = 0;
};

// Accesses that no event shows, so that the lack of findings about them proves nothing.
enum class Unwatched : uint8_t {
    source,        // whether the program writes what an operation of a stream reads of the host's memory
    destination,   // whether the program touches the host's memory that an operation of a stream writes
    alias,         // what it reads and writes through an array or tensor whose accesses are not logged
};
constexpr size_t kUnwatched = static_cast<size_t>(Unwatched::alias) + 1;

// How often, and the line of the first time.
struct UnwatchedCount {
    uint64_t count = 0;
    uint32_t log = 0, site = 0;
};

// An existing order: from an event of the first log to one of the second.
struct Edge {
    uint32_t from_log, from_site, to_log, to_site;
    log::Kind from, to;

    bool operator==(const Edge&) const = default;
};

// A wait that a line makes for each record of another line, and did not make once.
struct SkippedWait {
    EventRef record;                       // that it should have waited for
    EventRef before;                       // the access that came without it
    uint32_t log = 0, site = 0;         // the line of the wait
    uint64_t notify = 0, records = 0, waits = 0;
};

// Bytes that were written beside those that were read.
struct WrittenElsewhere {
    EventRef ref;
    uint64_t from = 0, to = 0;          // of the allocation
};

struct Finding {
    FindingKind kind;
    bool certain;
    uint64_t count = 1;
    EventRef first, second;
    // The allocation in which it lies, if one is known, and the bytes of it; else bytes of a block.
    bool in_allocation = false, is_of_unseen = false;   // a process without a log may have done what is missed
    bool is_of_look = false;     // what was read decides perhaps whether a loop ends
    uint32_t memory_log = 0, memory_site = 0;
    int32_t memory_rank = -1;
    uint64_t allocation = 0, size = 0, from = 0, to = 0;
    bool is_reused = false;      // a cache of the program handed the bytes out between the two events, ...
    uint32_t reuse_log = 0, reuse_site = 0;   // ... at this line
    Missing missing;
    // arrival, answer: the record that a wait could name, or that came too early; fence: the record before which it is missing;
    // consumption: the wait.
    bool has_help = false, help_is_enough = false;
    bool is_untaken = false;     // no wait took that record
    bool is_aside = false;       // arrival: the second's rank waited for that record, which came behind the first, but on another stream
    bool is_unwaited = false;    // nobody ever waits for the records of a line that would order the two, ...
    uint32_t unwaited_log = 0, unwaited_site = 0, unwaited_by = 0;   // which: the record's log and line, and the log that should wait
    bool has_late = false;       // the missing call is there, and comes too late: a wait for that record, or a synchronization
    uint32_t late_log = 0, late_site = 0;
    bool runs_again = false;     // the second's line had run before the first's
    bool needs_fence = false;    // arrival, answer: no notify brings the bytes without one
    EventRef help;
    uint64_t notify = 0;         // its index in the channel, or its number
    int32_t owner = -1;          // relay: the third rank
    bool has_last_order = false;
    Edge last_order{};
    uint32_t cause = kNoCause;   // the finding whose missing order would order this one, too
    bool is_skipped = false;
    SkippedWait skipped{};
    std::vector<WrittenElsewhere> elsewhere;   // unwritten_read: writes that may have been meant for these bytes

    static constexpr uint32_t kNoCause = UINT32_MAX;
};

}  // namespace peerlane::check
