// The processes with which this one has shared memory or signals: one has opened a handle of the other.
#pragma once

#include <cstdint>

namespace peerlane {

// As a slot of a ledger names its owner: the pid, and above it 32 bits of the kernel's start time.
constexpr uint64_t owner_word(int32_t pid, uint64_t start) { return start << 32 | static_cast<uint32_t>(pid); }

void note_sharer(uint64_t owner);
bool is_sharer(uint64_t owner);

}  // namespace peerlane
