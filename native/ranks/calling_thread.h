// Runs an operation of several ranks in the calling thread, without a stream.
#pragma once
#include "copy/copy_engine.h"
#include "stream/operation.h"

namespace peerlane {

void relax();   // in a loop that polls what another processor writes

// Returns when the operation is over, fails, or has waited for `patience_ns` at a time; true: it is over.  Else `step` is
// `waits` or `failed`.  While it waits it polls, at first without a pause, then it yields the processor.  `must_yield`: it yields
// at once, as this machine has more ranks than processors.  Throws Refusal when the poll says stop.
bool run_in_calling_thread(Stepwise& work, bool must_yield, uint64_t patience_ns, Stepwise::Step& step, Refusal& why, Poll poll = {});

}  // namespace peerlane
