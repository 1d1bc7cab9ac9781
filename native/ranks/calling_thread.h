// Runs an operation of several ranks in the calling thread, without a stream.
#pragma once
#include <sched.h>

#include "copy/copy_engine.h"
#include "stream/operation.h"
#include "stream/stream.h"

namespace peerlane {

void relax();   // in a loop that polls what another processor writes

// How long a call waits in its thread before it waits as streams do, asleep, in nanoseconds.
constexpr uint64_t patience_of(bool must_yield) {
    constexpr uint64_t kPatience = 1'000'000;
    constexpr uint64_t kTimeSlices = 10'000'000;   // then a rank that shares a processor comes
    return must_yield ? kTimeSlices : kPatience;
}

// How a thread that polls leaves its processor to others: at the first look; after a while; or, as their work is worth it, it sleeps.
enum class Leaves : uint8_t { at_once, later, asleep };

void nap();   // some 20 us

// Polls until `has_come()`; false: it has waited for `patience_ns`.
template <class Look>
bool poll_until(const Look& has_come, Leaves leaves, uint64_t patience_ns) {
    constexpr uint64_t kSpinAlone = 50'000;   // nanoseconds; then it yields the processor
    constexpr unsigned kLooks = 32;           // polls between two readings of the clock
    bool yields = leaves != Leaves::later;
    uint64_t began = 0;   // the first looks need no clock
    for (unsigned looks = 1; !has_come(); ++looks) {
        if (leaves == Leaves::asleep)
            nap();
        else if (yields)
            sched_yield();
        else
            relax();
        if (!yields && looks % kLooks != 0) continue;
        const uint64_t now = now_ns();
        if (began == 0) began = now;
        const uint64_t waited = now - began;
        if (waited >= patience_ns) return false;
        yields |= waited >= kSpinAlone;
    }
    return true;
}

// Returns when the operation is over, fails, or has waited for `patience_ns` at a time; true: it is over.  Else `step` is
// `waits` or `failed`.  `must_yield`: it yields at once, as this machine has more ranks than processors.  Throws Refusal when the poll says stop.
bool run_in_calling_thread(Stepwise& work, bool must_yield, uint64_t patience_ns, Stepwise::Step& step, Refusal& why, Poll poll = {});

}  // namespace peerlane
