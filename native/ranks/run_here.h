// An operation of several ranks in the calling thread, without a stream: it spins, then it lets others have the processor.
#pragma once
#include "copy/copy_engine.h"
#include "stream/operation.h"

namespace peerlane {

void relax();   // between two looks at what another processor writes

// Until it is over, fails, or has waited `patience_ns` at a time; true: it is over.  Else `step` says whether it waits or has
// failed.  `must_yield`: there are more ranks here than processors.  Throws Refusal when the poll says stop.
bool run_here(Stepwise& work, bool must_yield, uint64_t patience_ns, Stepwise::Step& step, Refusal& why, Poll poll = {});

}  // namespace peerlane
