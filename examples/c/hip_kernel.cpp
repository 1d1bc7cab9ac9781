// A kernel compiled for the processor, between copies on a stream; every number is verified.
//
//     g++ -std=c++17 hip_kernel.cpp -L$(peerlane c-abi --print-dir) -lamdhip64 -o hip_kernel
//     peerlane run --node devices=1,host_access=map ./hip_kernel
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "hip_declarations.h"
#include "processor_kernels.h"

static void check(hipError_t error, const char* call) {
    if (error == hipSuccess) return;
    std::fprintf(stderr, "%s returned %d: %s\n", call, (int)error, hipGetErrorString(error));
    std::exit(1);
}
#define CHECK(call) check(call, #call)

__global__ void add(int* numbers, size_t count, int by) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) numbers[i] += by;
}

int main() {
    constexpr size_t kCount = 100'000, kBytes = kCount * sizeof(int), kBlock = 256;
    std::vector<int> sent(kCount), came(kCount);
    std::iota(sent.begin(), sent.end(), 0);
    void* memory = nullptr;
    hipStream_t stream = nullptr;
    CHECK(hipMalloc(&memory, kBytes));
    CHECK(hipStreamCreate(&stream));

    CHECK(hipMemcpyAsync(memory, sent.data(), kBytes, hipMemcpyHostToDevice, stream));
    const dim3 grid((kCount + kBlock - 1) / kBlock), block(kBlock);
    hipLaunchKernelGGL(add, grid, block, 0, stream, static_cast<int*>(memory), kCount, 7);
    CHECK(hipGetLastError());
    CHECK(hipMemcpyAsync(came.data(), memory, kBytes, hipMemcpyDeviceToHost, stream));
    CHECK(hipStreamSynchronize(stream));

    for (size_t i = 0; i < kCount; ++i)
        if (came[i] != sent[i] + 7) {
            std::fprintf(stderr, "number %zu is %d, not %d\n", i, came[i], sent[i] + 7);
            return 1;
        }
    std::printf("a kernel added 7 to %zu numbers, every one verified\n", kCount);
    CHECK(hipStreamDestroy(stream));
    CHECK(hipFree(memory));
    return 0;
}
