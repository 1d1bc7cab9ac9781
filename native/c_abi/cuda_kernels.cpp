// What programs of nvcc and clang call for their kernels.  Virtual devices run none, so it is only remembered what was asked: nothing
// here starts Python, as most of it comes before main.
#include "c_abi/launch.h"

#include <cstddef>
#include <cstdint>

#define PEERLANE_C extern "C" __attribute__((visibility("default")))

using peerlane::c_abi::next_launch;
using peerlane::c_abi::Size;
using peerlane::c_abi::take_launch;

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;

}  // namespace

PEERLANE_C void** __cudaRegisterFatBinary(void* data) {
    static void* handle;   // its address means nothing to the program
    handle = data;
    return &handle;
}
PEERLANE_C void __cudaRegisterFatBinaryEnd(void**) {}
PEERLANE_C void __cudaUnregisterFatBinary(void**) {}
PEERLANE_C void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
PEERLANE_C void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
PEERLANE_C void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
PEERLANE_C char __cudaInitModule(void**) { return 1; }

PEERLANE_C void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}
PEERLANE_C void __cudaRegisterUnifiedTable() {}

// How nvcc's code launches: by what it got for the kernel.
PEERLANE_C int cudaLaunchKernel(const void* kernel, Size grid, Size block, void** arguments, size_t shared, void* stream);
PEERLANE_C int cudaLaunchKernel_ptsz(const void* kernel, Size grid, Size block, void** arguments, size_t shared, void* stream);
PEERLANE_C int __cudaGetKernel(const void** kernel, const void* function) {
    if (!kernel) return kInvalidValue;
    *kernel = function;
    return kSuccess;
}
PEERLANE_C int __cudaLaunchKernel(const void* kernel, Size grid, Size block, void** arguments, size_t shared, void* stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
PEERLANE_C int __cudaLaunchKernel_ptsz(const void* kernel, Size grid, Size block, void** arguments, size_t shared, void* stream) {
    return cudaLaunchKernel_ptsz(kernel, grid, block, arguments, shared, stream);
}

PEERLANE_C unsigned __cudaPushCallConfiguration(Size grid, Size block, size_t shared, void* stream) {
    next_launch = {grid, block, shared, stream};
    return kSuccess;
}

PEERLANE_C int __cudaPopCallConfiguration(Size* grid, Size* block, size_t* shared, void** stream) {
    return take_launch(grid, block, shared, stream) ? kSuccess : kInvalidValue;
}
