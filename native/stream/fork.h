// What a forked child of a process that had only asked for its devices may do: all that a new process may.
#pragma once

namespace peerlane {

// In the child, by its only thread.  False: the parent had memory, streams or signals, and every call goes on to be refused.
// Nothing of the parent's is touched either way.
bool begin_anew();

}  // namespace peerlane
