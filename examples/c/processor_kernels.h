// Kernels of HIP and CUDA compiled for the processor: each runs as a host function, in the order of its stream.
//
// Include it behind the vendor's hip_runtime_api.h, or behind cuda_runtime_api.h with PROCESSOR_KERNELS_OF_CUDA defined.
// HIP's programs call hipLaunchKernelGGL as ever; those of CUDA call launchKernel in place of kernel<<<...>>>(...).  The
// threads of a kernel run one after the other, so __syncthreads and what else lets them wait for each other is not here.
// The node must let the host touch device memory (`peerlane run --node host_access=map`).
#pragma once

#include <cstddef>

#define __global__
#define __device__

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

template <class Body>
void for_each_index(dim3 end, dim3& index, const Body& body) {
    for (index.z = 0; index.z < end.z; ++index.z)
        for (index.y = 0; index.y < end.y; ++index.y)
            for (index.x = 0; index.x < end.x; ++index.x) body();
}

// `queue` queues a host function with its argument, and returns whether it did.
template <class Queue, class... Parameters, class... Arguments>
void queue_kernel(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
    auto run = [=] {
        gridDim = grid;
        blockDim = block;
        for_each_index(grid, blockIdx, [&] { for_each_index(block, threadIdx, [&] { kernel(arguments...); }); });
    };
    using Run = decltype(run);
    const auto call = [](void* argument) {
        (*static_cast<Run*>(argument))();
        delete static_cast<Run*>(argument);
    };
    auto* const argument = new Run(run);
    if (!queue(call, argument)) delete argument;   // the vendor's last error tells the program
}

#ifdef PROCESSOR_KERNELS_OF_CUDA
template <class... Parameters, class... Arguments>
void launchKernel(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t /*shared*/, cudaStream_t stream, Arguments... arguments
) {
    const auto queue = [=](cudaHostFn_t call, void* argument) { return cudaLaunchHostFunc(stream, call, argument) == cudaSuccess; };
    queue_kernel(queue, kernel, grid, block, arguments...);
}
#else
template <class... Parameters, class... Arguments>
void hipLaunchKernelGGL(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t /*shared*/, hipStream_t stream, Arguments... arguments
) {
    const auto queue = [=](hipHostFn_t call, void* argument) { return hipLaunchHostFunc(stream, call, argument) == hipSuccess; };
    queue_kernel(queue, kernel, grid, block, arguments...);
}
#endif
