#include "copy/kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace peerlane {

#if defined(__x86_64__)

namespace {

constexpr size_t kPageBytes = 4096, kLaneBytes = 64;

// Kernels: `dst` is a multiple of kLaneBytes, for streaming stores fault elsewhere.  Several pages side by side, all loads
// before all stores: one stream of reads leaves the memory controller idle.  Shapes chosen by measurement,
// docs/design/figures.md.
template <size_t Pages, size_t Lanes, size_t Ahead>
__attribute__((target("avx512f"))) void stream_avx512(char* dst, const char* src, size_t n) {
    for (; n >= Pages * kPageBytes; n -= Pages * kPageBytes, dst += Pages * kPageBytes, src += Pages * kPageBytes)
        for (size_t at = 0; at < kPageBytes; at += Lanes * kLaneBytes) {
            __m512i lanes[Pages][Lanes];
            for (size_t page = 0; page < Pages; ++page)
                for (size_t lane = 0; lane < Lanes; ++lane) {
                    const char* from = src + page * kPageBytes + at + lane * kLaneBytes;
                    _mm_prefetch(from + Ahead * Lanes * kLaneBytes, _MM_HINT_T0);
                    lanes[page][lane] = _mm512_loadu_si512(from);
                }
            for (size_t page = 0; page < Pages; ++page)
                for (size_t lane = 0; lane < Lanes; ++lane)
                    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + page * kPageBytes + at + lane * kLaneBytes),
                                        lanes[page][lane]);
        }
    for (; n >= kLaneBytes; n -= kLaneBytes, dst += kLaneBytes, src += kLaneBytes)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(dst), _mm512_loadu_si512(src));
    memcpy(dst, src, n);
}

template <size_t Pages, size_t Ahead>
__attribute__((target("avx2"))) void stream_avx2(char* dst, const char* src, size_t n) {
    for (; n >= Pages * kPageBytes; n -= Pages * kPageBytes, dst += Pages * kPageBytes, src += Pages * kPageBytes)
        for (size_t at = 0; at < kPageBytes; at += kLaneBytes) {
            __m256i halves[Pages][2];
            for (size_t page = 0; page < Pages; ++page) {
                const char* from = src + page * kPageBytes + at;
                _mm_prefetch(from + Ahead * kLaneBytes, _MM_HINT_T0);
                halves[page][0] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
                halves[page][1] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + kLaneBytes / 2));
            }
            for (size_t page = 0; page < Pages; ++page) {
                char* to = dst + page * kPageBytes + at;
                _mm256_stream_si256(reinterpret_cast<__m256i*>(to), halves[page][0]);
                _mm256_stream_si256(reinterpret_cast<__m256i*>(to + kLaneBytes / 2), halves[page][1]);
            }
        }
    memcpy(dst, src, n);
}

template <StreamCopy kernel>
void from_lane_start(char* dst, const char* src, size_t n) {
    const size_t head = -reinterpret_cast<uintptr_t>(dst) & (kLaneBytes - 1);
    if (n < head + kLaneBytes) {
        memcpy(dst, src, n);
        return;
    }
    memcpy(dst, src, head);
    kernel(dst + head, src + head, n - head);
}

std::vector<StreamCopy> of_this_processor() {
    std::vector<StreamCopy> copies;
    if (__builtin_cpu_supports("avx512f")) copies.push_back(from_lane_start<stream_avx512<8, 2, 1>>);
    if (__builtin_cpu_supports("avx2")) copies.push_back(from_lane_start<stream_avx2<4, 2>>);
    return copies;
}

}  // namespace

void store_fence() { _mm_sfence(); }

#else

namespace {
std::vector<StreamCopy> of_this_processor() { return {}; }
}  // namespace

void store_fence() { __atomic_thread_fence(__ATOMIC_RELEASE); }

#endif

const std::vector<StreamCopy>& stream_copies() {
    static const auto& copies = *new std::vector<StreamCopy>(of_this_processor());
    return copies;
}

namespace {
const StreamCopy chosen = stream_copies().empty() ? nullptr : stream_copies().front();
}  // namespace

bool has_stream_copy() { return chosen != nullptr; }

void stream_copy(char* dst, const char* src, size_t n) {
    if (chosen)
        chosen(dst, src, n);
    else
        memcpy(dst, src, n);
}

void copy_bytes(char* dst, const char* src, size_t n, bool past_caches) {
    if (!past_caches || !chosen) {
        memcpy(dst, src, n);
        return;
    }
    chosen(dst, src, n);
    store_fence();
}

void fill_pattern(char* dst, uint32_t pattern, size_t n) {
    const uint32_t byte = pattern & 0xFF;
    if (pattern == byte * 0x01010101u) {
        memset(dst, static_cast<int>(byte), n);
        return;
    }
    size_t at = 0;
    for (; at + 4 <= n; at += 4) memcpy(dst + at, &pattern, 4);
    memcpy(dst + at, &pattern, n - at);
}

}  // namespace peerlane
