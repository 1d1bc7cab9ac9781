#include "copy/reduce_kernels.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PEERLANE_INLINE inline __attribute__((always_inline))

namespace peerlane {

namespace {

template <class T>
struct Whole {
    using Stored = T;

    template <Combine op>
    static PEERLANE_INLINE T of(T a, T b) {
        // Wide enough not to be promoted to int, whose overflow is undefined.
        using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
        if constexpr (op == Combine::sum) return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
        if constexpr (op == Combine::prod) return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
        if constexpr (op == Combine::max) return a > b ? a : b;
        if constexpr (op == Combine::min) return a < b ? a : b;
    }
};

template <class T, class Bits, Bits quiet>
struct Real {
    using Stored = T;

    template <Combine op>
    static PEERLANE_INLINE T of(T a, T b) {
        // Both sides of `|` are looked at: what jumps is not vectorised.
        if constexpr (op == Combine::max) return ((a > b) | (a != a)) ? a : b;
        if constexpr (op == Combine::min) return ((a < b) | (a != a)) ? a : b;
        // Compilers swap the operands as they like, and the processor takes the first that is no number.
        const T nan = std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(a) | quiet));
        const T result = op == Combine::sum ? a + b : a * b;
        return a != a ? nan : result;
    }
};
using Single = Real<float, uint32_t, 0x400000>;
using Double = Real<double, uint64_t, 0x8000000000000>;

PEERLANE_INLINE uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
PEERLANE_INLINE float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// Conversions without a branch, as vectors want them; bit by bit what the processor's own give.
struct Half {
    static constexpr uint16_t infinity = 0x7C00, quiet = 0;
    static constexpr bool keeps_first_zero = true;

    static PEERLANE_INLINE float widen(uint16_t half) {
        const int32_t size = half & 0x7FFF, bits = size << 13;
        const int32_t small = bits_of(float_of(bits + (113 << 23)) - 0x1p-14f);   // no operand is denormal, which costs
        const int32_t large = size < infinity ? bits + (112 << 23) : bits | 0x7F800000;
        return float_of((size < 0x400 ? small : large) | (half & 0x8000u) << 16);
    }
    static PEERLANE_INLINE uint16_t narrow(float value) {
        const int32_t bits = bits_of(value), size = bits & 0x7FFFFFFF;
        const int32_t normal = (size - (112 << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
        const int32_t denormal = bits_of(float_of(size) + 0.5f) - (126 << 23);   // the addition rounds
        const int32_t small = size < 113 << 23 ? denormal : normal;
        const int32_t large = size > 0x7F800000 ? 0x7E00 | (size >> 13 & 0x3FF) : infinity;
        return static_cast<uint16_t>((bits >> 16 & 0x8000) | (size < 143 << 23 ? small : large));
    }
};

struct Brain {
    static constexpr uint16_t infinity = 0x7F80, quiet = 0x40;
    static constexpr bool keeps_first_zero = false;

    static PEERLANE_INLINE float widen(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }
    // The upper half counts.  What is no number was widened, or is the processor's own: its lower half is 0 and stays below.
    static PEERLANE_INLINE uint32_t rounded(float value) {
        const uint32_t bits = bits_of(value);
        return bits + 0x7FFF + (bits >> 16 & 1);
    }
    static PEERLANE_INLINE uint16_t narrow(float value) { return static_cast<uint16_t>(rounded(value) >> 16); }
};

template <class Format>
struct Short {
    using Stored = uint16_t;

    // All bits, or none: where there is a branch to be seen, compilers follow it apart.
    static PEERLANE_INLINE uint16_t where(bool is_so) { return static_cast<uint16_t>(-static_cast<int16_t>(is_so)); }
    static PEERLANE_INLINE uint16_t choose(uint16_t mask, uint16_t a, uint16_t b) {
        return static_cast<uint16_t>(b ^ ((a ^ b) & mask));
    }
    static PEERLANE_INLINE uint16_t where_nan(uint16_t half) {
        return where(static_cast<int16_t>(half & 0x7FFF) > static_cast<int16_t>(Format::infinity));
    }
    // Whole numbers that compare as the values do, or the other way round; both zeros are 0.
    static PEERLANE_INLINE int16_t rank(uint16_t half, bool is_upwards, uint16_t of_nan) {
        const auto flip = static_cast<uint16_t>(static_cast<int16_t>(is_upwards ? half : ~half) >> 15);
        const auto number = static_cast<uint16_t>(((half & 0x7FFF) ^ flip) - flip);
        return static_cast<int16_t>(choose(where_nan(half), of_nan, number));
    }

    template <Combine op>
    static PEERLANE_INLINE uint16_t of(uint16_t a, uint16_t b) {
        if constexpr (op == Combine::sum || op == Combine::prod) {
            return Format::narrow(Single::of<op>(Format::widen(a), Format::widen(b)));
        } else {
            const int16_t left = rank(a, op == Combine::max, 0x7FFF), right = rank(b, op == Combine::max, 0x7FFE);
            const uint16_t chosen = choose(where(Format::keeps_first_zero ? left >= right : left > right), a, b);
            return static_cast<uint16_t>(chosen | (Format::quiet & where_nan(chosen)));
        }
    }
};

// Of 8 bits, of which `mantissa` are the lower ones of the fraction.
template <unsigned mantissa_bits, int exponent_bias, uint8_t largest_number, uint8_t first_nan>
struct Tiny {
    using Stored = uint8_t;

    static constexpr float power_of_two(int exponent) { return std::bit_cast<float>((exponent + 127) << 23); }
    static constexpr float value_of(unsigned bits) {
        const unsigned size = bits & 0x7F, exponent = size >> mantissa_bits, fraction = size & ((1u << mantissa_bits) - 1);
        uint32_t value = 0x7F800000;   // infinity
        if (size >= first_nan) value = 0x7FC00000;
        else if (size <= largest_number && exponent != 0) value = (exponent + 127 - exponent_bias) << 23 | fraction << (23 - mantissa_bits);
        else if (size <= largest_number) value = std::bit_cast<uint32_t>(static_cast<float>(fraction) * power_of_two(kLeast));
        return std::bit_cast<float>(value | (bits & 0x80) << 24);
    }
    static constexpr std::array<float, 256> values() {
        std::array<float, 256> all{};
        for (unsigned bits = 0; bits < 256; ++bits) all[bits] = value_of(bits);
        return all;
    }
    static constexpr int kLeast = 1 - exponent_bias - static_cast<int>(mantissa_bits);   // the exponent of the least number
    static constexpr std::array<float, 256> kValues = values();

    static PEERLANE_INLINE uint8_t narrow(float value) {
        constexpr unsigned shift = 23 - mantissa_bits;
        constexpr uint32_t least_normal = static_cast<uint32_t>(128 - exponent_bias) << 23;
        const uint32_t bits = bits_of(value), size = bits & 0x7FFFFFFF;
        if (size > 0x7F800000) return 0x7F;
        const uint32_t normal = (size - (least_normal - (1u << 23)) + (1u << (shift - 1)) - 1 + (size >> shift & 1)) >> shift;
        constexpr float grid = power_of_two(kLeast + 23);   // the addition rounds
        const uint32_t number = size < least_normal ? bits_of(float_of(size) + grid) - bits_of(grid) : normal;
        return static_cast<uint8_t>((bits >> 24 & 0x80) | std::min<uint32_t>(number, largest_number));
    }

    template <Combine op>
    static PEERLANE_INLINE uint8_t of(uint8_t a, uint8_t b) {
        const float left = kValues[a], right = kValues[b];
        if constexpr (op == Combine::max) return ((left > right) | (left != left)) ? a : b;
        if constexpr (op == Combine::min) return ((left < right) | (left != left)) ? a : b;
        return narrow(op == Combine::sum ? left + right : left * right);
    }
};
using E4m3 = Tiny<3, 7, 0x7E, 0x7F>;   // has no infinity
using E5m2 = Tiny<2, 15, 0x7B, 0x7D>;

typedef uint32_t Two __attribute__((may_alias, aligned(2)));

template <class Kind, Combine op>
PEERLANE_INLINE void each(char* dst, const char* first, const char* second, size_t n) {
    using T = typename Kind::Stored;
    T* const to = reinterpret_cast<T*>(dst);
    const T* const a = reinterpret_cast<const T*>(first);
    const T* const b = reinterpret_cast<const T*>(second);
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) to[i] = Kind::template of<op>(a[i], b[i]);
}

// Two to a word: nothing has to change its place.
template <Combine op>
PEERLANE_INLINE void each_brain(char* dst, const char* first, const char* second, size_t n) {
    Two* const to = reinterpret_cast<Two*>(dst);
    const Two* const left = reinterpret_cast<const Two*>(first);
    const Two* const right = reinterpret_cast<const Two*>(second);
    const size_t words = n / 2;
    constexpr uint32_t upper = 0xFFFF0000u;
#pragma GCC ivdep
    for (size_t i = 0; i < words; ++i) {
        const uint32_t a = left[i], b = right[i];
        const uint32_t high = Brain::rounded(Single::of<op>(float_of(a & upper), float_of(b & upper)));
        const uint32_t low = Brain::rounded(Single::of<op>(float_of(a << 16), float_of(b << 16)));
        to[i] = (high & upper) | low >> 16;
    }
    each<Short<Brain>, op>(dst + words * 4, first + words * 4, second + words * 4, n % 2);
}

template <class Kind, Combine op>
PEERLANE_INLINE void run_plain(char* dst, const char* first, const char* second, size_t n) {
    constexpr bool computes = op == Combine::sum || op == Combine::prod;
    if constexpr (computes && std::is_same_v<Kind, Short<Brain>>)
        each_brain<op>(dst, first, second, n);
    else
        each<Kind, op>(dst, first, second, n);
}

struct Plain {
    template <class Kind, Combine op>
    static void run(char* dst, const char* first, const char* second, size_t n) {
        run_plain<Kind, op>(dst, first, second, n);
    }
};

#if defined(__x86_64__)
#define PEERLANE_AVX2 __attribute__((target("avx2,f16c")))
// Clang ignores the whole attribute if it does not know one word of it.
#if defined(__clang__)
#define PEERLANE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"), min_vector_width(512)))
#else
#define PEERLANE_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512")))
#endif

template <class Kind, Combine op>
constexpr bool converts = std::is_same_v<Kind, Short<Half>> && (op == Combine::sum || op == Combine::prod);

struct Avx2 {
    template <class Kind, Combine op>
    PEERLANE_AVX2 static void run(char* dst, const char* first, const char* second, size_t n) {
        if constexpr (converts<Kind, op>) {
            for (; n >= 8; n -= 8, dst += 16, first += 16, second += 16) {
                const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first)));   // and quiet
                const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(second)));
                const __m256 result = op == Combine::sum ? _mm256_add_ps(a, b) : _mm256_mul_ps(a, b);
                const __m256 kept = _mm256_blendv_ps(result, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), _mm256_cvtps_ph(kept, _MM_FROUND_TO_NEAREST_INT));
            }
        }
        run_plain<Kind, op>(dst, first, second, n);
    }
};

// Without a mask GCC 12 warns of operands that it leaves undefined itself.
constexpr __mmask16 kAll = 0xFFFF;

struct Avx512 {
    template <class Kind, Combine op>
    PEERLANE_AVX512 static void run(char* dst, const char* first, const char* second, size_t n) {
        if constexpr (converts<Kind, op>) {
            for (; n >= 16; n -= 16, dst += 32, first += 32, second += 32) {
                const __m512 a = _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first)));   // and quiet
                const __m512 b = _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second)));
                const __m512 result = op == Combine::sum ? _mm512_add_ps(a, b) : _mm512_mul_ps(a, b);
                const __m512 kept = _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), _mm512_maskz_cvtps_ph(kAll, kept, _MM_FROUND_TO_NEAREST_INT));
            }
        }
        run_plain<Kind, op>(dst, first, second, n);
    }
};
#endif

template <class Level, class Kind, Combine... op>
constexpr std::array<Reduction, kCombines> row() {
    return {Reduction{&Level::template run<Kind, op>, sizeof(typename Kind::Stored)}...};
}

template <class Level, class... Kind>
constexpr Reductions table_of() {
    return {row<Level, Kind, Combine::sum, Combine::prod, Combine::max, Combine::min>()...};
}

// In the order of Element.
template <class Level>
constexpr Reductions kTable =
    table_of<Level, Whole<int8_t>, Whole<int16_t>, Whole<int32_t>, Whole<int64_t>, Whole<uint8_t>, Whole<uint16_t>,
             Whole<uint32_t>, Whole<uint64_t>, Short<Half>, Short<Brain>, Single, Double, E4m3, E5m2>();

}  // namespace

std::vector<const Reductions*> all_reductions() {
    std::vector<const Reductions*> tables;
#if defined(__x86_64__)
    const bool converts_halves = __builtin_cpu_supports("f16c");
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx512 && converts_halves) tables.push_back(&kTable<Avx512>);
    if (__builtin_cpu_supports("avx2") && converts_halves) tables.push_back(&kTable<Avx2>);
#endif
    tables.push_back(&kTable<Plain>);
    return tables;
}

const Reductions& reductions() {
    static const Reductions& best = *all_reductions().front();
    return best;
}

}  // namespace peerlane
