// The calls that programs of C make most, answered by native code: the library asks `_core` for this table.
//
// Each function has the name and the words of the vendor's, and returns whether it has succeeded, or the vendor's code.  False,
// kDeclined: nothing has happened, and the dialect must be asked.
// They serve what the dialect has served before in this thread, and what cannot fail; they never take the GIL.
#pragma once

#include <atomic>
#include <cstdint>

namespace peerlane::c_abi {

constexpr int32_t kDeclined = -1;

struct Quick {
    std::atomic<uint32_t>* gil_waiters;   // how many threads of C wait for the GIL
    void (*follow_waits)() noexcept;      // before the first call of such a thread: who joins it may have the GIL
    bool (*aclrtGetDevice)(uint64_t number) noexcept;
    bool (*aclrtMemcpy)(uint64_t dst, uint64_t room, uint64_t src, uint64_t size, int32_t kind) noexcept;
    bool (*aclrtMemcpyAsync)(uint64_t dst, uint64_t room, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept;
    bool (*aclrtLaunchHostFunc)(uint64_t stream, uint64_t function, uint64_t word) noexcept;
    bool (*HcommWriteOnThread)(uint64_t thread, uint64_t channel, uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*hipGetDevice)(uint64_t number) noexcept;
    bool (*hipMemcpy)(uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept;
    bool (*hipMemcpyAsync)(uint64_t dst, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept;
    bool (*hipLaunchHostFunc)(uint64_t stream, uint64_t function, uint64_t word) noexcept;
    bool (*hipStreamAddCallback)(uint64_t stream, uint64_t function, uint64_t word, uint32_t flags) noexcept;
    bool (*hipEventRecord)(uint64_t event, uint64_t stream) noexcept;
    int32_t (*hipEventQuery)(uint64_t event) noexcept;
    bool (*hipEventSynchronize)(uint64_t event) noexcept;
    bool (*hipStreamWaitEvent)(uint64_t stream, uint64_t event, uint32_t flags) noexcept;
    int32_t (*hipStreamQuery)(uint64_t stream) noexcept;
    bool (*hipStreamSynchronize)(uint64_t stream) noexcept;
    bool (*hipMallocAsync)(uint64_t address, uint64_t size, uint64_t stream) noexcept;
    bool (*hipMallocFromPoolAsync)(uint64_t address, uint64_t size, uint64_t pool, uint64_t stream) noexcept;
    bool (*hipFreeAsync)(uint64_t address, uint64_t stream) noexcept;
    bool (*cuCtxGetDevice)(uint64_t number) noexcept;
    bool (*cuDeviceGet)(uint64_t device, int32_t ordinal) noexcept;
    bool (*cuDeviceGetAttribute)(uint64_t value, int32_t attribute, int32_t device) noexcept;
    bool (*cuDeviceGetCount)(uint64_t count) noexcept;
    bool (*cuDeviceGetUuid)(uint64_t uuid, int32_t device) noexcept;
    bool (*cuDeviceGetUuid_v2)(uint64_t uuid, int32_t device) noexcept;
    bool (*cuPointerGetAttribute)(uint64_t address, int32_t attribute, uint64_t pointer) noexcept;
    bool (*cuPointerGetAttributes)(uint32_t count, uint64_t attributes, uint64_t addresses, uint64_t pointer) noexcept;
    bool (*cuCtxGetCurrent)(uint64_t context) noexcept;
    bool (*cuCtxGetId)(uint64_t context, uint64_t id) noexcept;
    bool (*cuCtxPushCurrent_v2)(uint64_t context) noexcept;
    bool (*cuCtxPopCurrent_v2)(uint64_t context) noexcept;
    bool (*cuCtxSetCurrent)(uint64_t context) noexcept;
    bool (*cuDevicePrimaryCtxGetState)(int32_t device, uint64_t flags, uint64_t is_active) noexcept;
    bool (*cuDevicePrimaryCtxRetain)(uint64_t context, int32_t device) noexcept;
    bool (*cuDevicePrimaryCtxRelease_v2)(int32_t device) noexcept;
    bool (*cuMemcpy)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpy_ptds)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyHtoD_v2)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyHtoD_v2_ptds)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyDtoH_v2)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyDtoH_v2_ptds)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyDtoD_v2)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyDtoD_v2_ptds)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyAsync)(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    bool (*cuMemcpyHtoDAsync_v2)(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    bool (*cuMemcpyDtoHAsync_v2)(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    bool (*cuMemcpyDtoDAsync_v2)(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    bool (*cuLaunchHostFunc)(uint64_t stream, uint64_t function, uint64_t word) noexcept;
    bool (*cuEventRecord)(uint64_t event, uint64_t stream) noexcept;
    int32_t (*cuEventQuery)(uint64_t event) noexcept;
    bool (*cuEventSynchronize)(uint64_t event) noexcept;
    bool (*cuStreamWaitEvent)(uint64_t stream, uint64_t event, uint32_t flags) noexcept;
    int32_t (*cuStreamQuery)(uint64_t stream) noexcept;
    bool (*cuStreamSynchronize)(uint64_t stream) noexcept;
    bool (*cuMemAllocAsync)(uint64_t address, uint64_t size, uint64_t stream) noexcept;
    bool (*cuMemAllocFromPoolAsync)(uint64_t address, uint64_t size, uint64_t pool, uint64_t stream) noexcept;
    bool (*cuMemFreeAsync)(uint64_t address, uint64_t stream) noexcept;
    bool (*cudaGetDevice)(uint64_t number) noexcept;
    bool (*cudaMemcpy)(uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept;
    bool (*cudaMemcpy_ptds)(uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept;
    bool (*cudaMemcpyAsync)(uint64_t dst, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept;
    bool (*cudaLaunchHostFunc)(uint64_t stream, uint64_t function, uint64_t word) noexcept;
    bool (*cudaEventRecord)(uint64_t event, uint64_t stream) noexcept;
    int32_t (*cudaEventQuery)(uint64_t event) noexcept;
    bool (*cudaEventSynchronize)(uint64_t event) noexcept;
    bool (*cudaStreamWaitEvent)(uint64_t stream, uint64_t event, uint32_t flags) noexcept;
    int32_t (*cudaStreamQuery)(uint64_t stream) noexcept;
    bool (*cudaStreamSynchronize)(uint64_t stream) noexcept;
    bool (*cudaMallocAsync)(uint64_t address, uint64_t size, uint64_t stream) noexcept;
    bool (*cudaMallocFromPoolAsync)(uint64_t address, uint64_t size, uint64_t pool, uint64_t stream) noexcept;
    bool (*cudaFreeAsync)(uint64_t address, uint64_t stream) noexcept;
};

}  // namespace peerlane::c_abi
