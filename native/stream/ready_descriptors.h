// The descriptors of events that a logged program has, by number: who sees that one is readable has waited for its record.
#pragma once
#include <cstdint>

namespace peerlane::ready_descriptors {

void add(int fd, uint64_t stream, uint64_t sequence);   // throws std::bad_alloc
void remove(int fd) noexcept;                           // before it is closed

// The calling thread has seen that a descriptor is readable: if it is an event's, the checker learns what that orders.
void note_seen(int fd) noexcept;
// Whether there are any: one look at a flag.
bool are_any() noexcept;

}  // namespace peerlane::ready_descriptors
