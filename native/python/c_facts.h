// What calls of C that native code answers share: the facts that the dialects have recorded of the calling thread.
#pragma once
#include <cstdint>

#include "stream/stream.h"

// A stream that calls of CUDA in this thread know, and the handle of its context; null: the dialect must be asked.
struct ThreadStream {
    peerlane::Stream* stream = nullptr;
    uint64_t context = 0;
};
ThreadStream cuda_stream_of(uint64_t handle);
// Whether calls of CUDA in this thread may be answered at all.
bool may_answer_cuda();
// The line of a call, in Python or C, by the address to which it returns.  It may take the GIL, and other code of the program may run then.
uint64_t line_of_c_call(uint64_t caller);

// A piece of an allocation of one device, pinned for who takes it over; null extent: it is something else.
peerlane::Range pinned_memory(const char* role, uint64_t address, uint64_t size, uint32_t device);

// The calls of NCCL; kDeclined (c_abi/quick.h): the dialect must be asked, and nothing has happened.
namespace nccl_calls {
enum class Verb : uint8_t { all_reduce, reduce, reduce_scatter, broadcast, bcast, all_gather, all_to_all, scatter, send, receive };

// As the program called it.
struct Asked {
    Verb verb;
    uint64_t source, target, count;
    int32_t datatype, operation, root;   // -1 where the call has no such word
    uint64_t communicator, stream, caller;
};
int32_t run(const Asked& asked) noexcept;
bool begin_group() noexcept;
int32_t end_group() noexcept;
}  // namespace nccl_calls
