// The calls that programs of C make most, answered by native code: the library asks `_core` for this table.
//
// Each function has the name and the words of the vendor's.  False: nothing has happened, and the dialect must be asked.
// They serve what the dialect has served before in this thread, and what cannot fail; they never take the GIL.
#pragma once

#include <cstdint>

namespace peerlane::c_abi {

struct Quick {
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
    bool (*cuCtxGetDevice)(uint64_t number) noexcept;
    bool (*cuMemcpy)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyHtoD_v2)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyDtoH_v2)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyDtoD_v2)(uint64_t dst, uint64_t src, uint64_t size) noexcept;
    bool (*cuMemcpyAsync)(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    bool (*cuMemcpyHtoDAsync_v2)(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    bool (*cuMemcpyDtoHAsync_v2)(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    bool (*cuMemcpyDtoDAsync_v2)(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept;
    bool (*cuLaunchHostFunc)(uint64_t stream, uint64_t function, uint64_t word) noexcept;
    bool (*cudaGetDevice)(uint64_t number) noexcept;
    bool (*cudaMemcpy)(uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept;
    bool (*cudaMemcpyAsync)(uint64_t dst, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept;
    bool (*cudaLaunchHostFunc)(uint64_t stream, uint64_t function, uint64_t word) noexcept;
};

}  // namespace peerlane::c_abi
