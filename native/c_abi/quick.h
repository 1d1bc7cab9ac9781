// The calls that programs of C make most, answered by native code: the library asks `_core` for this table.
//
// Each function has the name and the words of the vendor's.  Some have the address to which they return, or the name of the library's header, too.  A function returns whether it has succeeded, or the vendor's code.  False,
// kDeclined: nothing has happened, and the dialect must be asked.  entry_points.py reads this file.
// They serve what the dialect has served before in this thread, and what cannot fail.  Waits that may last, and calls of NCCL, take the GIL in a thread of Python.
#pragma once

#include <atomic>
#include <cstdint>

namespace peerlane::c_abi {

constexpr int32_t kDeclined = -1;

struct Quick {
    std::atomic<uint32_t>* gil_waiters;   // how many threads of C wait for the GIL
    void (*follow_waits)() noexcept;      // before the first call of such a thread: who joins it may have the GIL
    bool (*begin_call)() noexcept;        // of C, which may take the GIL; false: Python ends
    void (*end_call)() noexcept;

    using GetDevice = bool(uint64_t number) noexcept;
    using Copy = bool(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    using CopyOn = bool(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    using CopyOfKind = bool(uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept;
    using CopyOfKindOn = bool(uint64_t dst, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept;
    using LaunchHostFunction = bool(uint64_t stream, uint64_t function, uint64_t word) noexcept;
    using RecordEvent = bool(uint64_t event, uint64_t stream) noexcept;
    using WaitForEvent = bool(uint64_t stream, uint64_t event, uint32_t flags, uint64_t caller) noexcept;
    using Query = int32_t(uint64_t handle) noexcept;
    using QueryOfRuntime = int32_t(uint64_t handle, const char* library) noexcept;
    using LastError = int32_t(const char* library) noexcept;
    using Synchronize = bool(uint64_t handle) noexcept;
    using Allocate = bool(uint64_t address, uint64_t size, uint64_t stream) noexcept;
    using AllocateFromPool = bool(uint64_t address, uint64_t size, uint64_t pool, uint64_t stream) noexcept;
    using Free = bool(uint64_t address, uint64_t stream) noexcept;

    using ReduceAll = int32_t(uint64_t source, uint64_t target, uint64_t count, int32_t datatype, int32_t operation, uint64_t communicator, uint64_t stream,
                              uint64_t caller) noexcept;
    using MoveFromRoot = int32_t(uint64_t source, uint64_t target, uint64_t count, int32_t datatype, int32_t root, uint64_t communicator, uint64_t stream,
                                 uint64_t caller) noexcept;
    using ExchangeParts = int32_t(uint64_t source, uint64_t target, uint64_t count, int32_t datatype, uint64_t communicator, uint64_t stream, uint64_t caller) noexcept;
    using MoveOne = int32_t(uint64_t memory, uint64_t count, int32_t datatype, int32_t rank, uint64_t communicator, uint64_t stream, uint64_t caller) noexcept;
    using ReduceToRoot = int32_t(uint64_t source, uint64_t target, uint64_t count, int32_t datatype, int32_t operation, int32_t root, uint64_t communicator,
                                 uint64_t stream, uint64_t caller) noexcept;

    GetDevice *aclrtGetDevice, *hipGetDevice, *cuCtxGetDevice, *cudaGetDevice;
    Copy *cuMemcpy, *cuMemcpyHtoD_v2, *cuMemcpyDtoH_v2, *cuMemcpyDtoD_v2;
    Copy *cuMemcpy_ptds, *cuMemcpyHtoD_v2_ptds, *cuMemcpyDtoH_v2_ptds, *cuMemcpyDtoD_v2_ptds;
    CopyOn *cuMemcpyAsync, *cuMemcpyHtoDAsync_v2, *cuMemcpyDtoHAsync_v2, *cuMemcpyDtoDAsync_v2;
    CopyOfKind *hipMemcpy, *cudaMemcpy, *cudaMemcpy_ptds;
    CopyOfKindOn *hipMemcpyAsync, *cudaMemcpyAsync;
    LaunchHostFunction *aclrtLaunchHostFunc, *hipLaunchHostFunc, *cuLaunchHostFunc, *cudaLaunchHostFunc;
    RecordEvent *hipEventRecord, *cuEventRecord, *cudaEventRecord;
    WaitForEvent *hipStreamWaitEvent, *cuStreamWaitEvent, *cudaStreamWaitEvent;
    Query *hipEventQuery, *cuEventQuery, *hipStreamQuery, *cuStreamQuery;
    QueryOfRuntime *cudaEventQuery, *cudaStreamQuery;
    LastError *cudaGetLastError, *cudaPeekAtLastError;
    Synchronize *hipEventSynchronize, *cuEventSynchronize, *cudaEventSynchronize, *hipStreamSynchronize, *cuStreamSynchronize, *cudaStreamSynchronize;
    Allocate *hipMallocAsync, *cuMemAllocAsync, *cudaMallocAsync;
    AllocateFromPool *hipMallocFromPoolAsync, *cuMemAllocFromPoolAsync, *cudaMallocFromPoolAsync;
    Free *hipFreeAsync, *cuMemFreeAsync, *cudaFreeAsync;

    ReduceAll *ncclAllReduce, *ncclReduceScatter;
    ReduceToRoot *ncclReduce;
    MoveFromRoot *ncclBroadcast, *ncclScatter;
    ExchangeParts *ncclAllGather, *ncclAlltoAll;
    MoveOne *ncclBcast, *ncclSend, *ncclRecv;
    bool (*ncclGroupStart)() noexcept;
    int32_t (*ncclGroupEnd)() noexcept;

    bool (*aclrtMemcpy)(uint64_t dst, uint64_t room, uint64_t src, uint64_t size, int32_t kind) noexcept;
    bool (*aclrtMemcpyAsync)(uint64_t dst, uint64_t room, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept;
    bool (*HcommWriteOnThread)(uint64_t thread, uint64_t channel, uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*hipStreamAddCallback)(uint64_t stream, uint64_t function, uint64_t word, uint32_t flags) noexcept;
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
};

}  // namespace peerlane::c_abi
