// The threads of this process, by the kernel's list.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace peerlane {

// Each native thread of peerlane calls it first: signals but for faults are the interpreter's business, and
// foreign_threads() leaves the thread out until it ends.
void begin_own_thread();

// The same for threads that a library starts while `start` runs, by the name that it gives them.  They end with the process.
void list_threads_named(const char* name, const std::function<void()>& start);

// A value that changes whenever a foreign thread runs; nothing if one of them may run by itself.  Foreign are all threads
// but the known ones (by thread id) and peerlane's own.  One can only be woken by this process if it sleeps without a
// time-out on a futex that no other process shares: the idle workers of compute libraries do.  `may_watch`: Python's
// faulthandler may have its thread, which runs no code of the program.
std::optional<uint64_t> foreign_threads(const std::vector<int32_t>& known, bool may_watch);

}  // namespace peerlane
