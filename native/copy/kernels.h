// Moving bytes on one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace peerlane {

// Stores that bypass the cache.  Whoever used it calls store_fence() before publishing the bytes.
void stream_copy(char* dst, const char* src, size_t n);
bool has_stream_copy();   // false: stream_copy is memcpy
void store_fence();
// All of it, past the caches if asked and if this processor can.
void copy_bytes(char* dst, const char* src, size_t n, bool past_caches);

// Every stream copy of this processor, the fastest first: the one that stream_copy is.
using StreamCopy = void (*)(char* dst, const char* src, size_t n);
const std::vector<StreamCopy>& stream_copies();

// Write `n` bytes of the repeating 4-byte `pattern`; `dst` lies a multiple of 4 bytes from its start.
void fill_pattern(char* dst, uint32_t pattern, size_t n);

}  // namespace peerlane
