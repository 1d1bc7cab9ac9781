// One step of a reduction, so that of those into one place none is lost.
#pragma once
#include <cstdint>

#include "copy/reduce_kernels.h"

namespace peerlane {

// Under a fault guard.  What runs in this process into the same bytes, however they are mapped, takes turns; rounding and
// denormals are those of the standard, whatever the thread has set.  At most kChunk bytes that end within kChunk of host addresses.
void reduce_alone(const Reduction& reduction, char* dst, const char* src, uint64_t size);

// In a forked child: nobody is left whose turn it was.
void forget_turns();

}  // namespace peerlane
