// Calls of kernels that were compiled for the processor: while one runs, its thread may touch device memory.
#pragma once
#include <cstdint>

namespace peerlane {

using Kernel = uint32_t (*)(void* arguments);

// Allocations are mapped at their own addresses when the kernel touches them first, and are out of reach again when it
// has returned.  They are kept as long.
uint32_t call_kernel(Kernel kernel, void* arguments);

// In a signal handler: map what lies at a device address, if this thread runs a kernel.  False: it does not, or nothing
// lies there that may be touched so.
bool lend_to_kernel(uintptr_t address);

}  // namespace peerlane
