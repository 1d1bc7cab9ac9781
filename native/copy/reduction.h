// One step of a reduction, so that no concurrent reduction into the same bytes is lost.
#pragma once
#include <cstdint>

#include "copy/reduce_kernels.h"

namespace peerlane {

// Under a fault guard.  What runs in this process into the same bytes, however they are mapped, takes turns; rounding and
// denormals are those of the standard, whatever the thread has set.  At most kChunk bytes that end within kChunk of host addresses.
void reduce_alone(const Reduction& reduction, char* dst, const char* src, uint64_t size);

// In a forked child: the thread that held the lock does not exist.
void forget_stripe_locks();

}  // namespace peerlane
