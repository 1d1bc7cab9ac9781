#include "reduce_kernels.h"

#include <bit>
#include <type_traits>

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

// Without a branch, as vectors want it; bit by bit what the processor's own conversions give.
struct Half {
    static constexpr uint16_t infinity = 0x7C00, quiet = 0;
    static constexpr bool keeps_first_zero = true;

    static PEERLANE_INLINE float widen(uint16_t half) {
        const uint32_t size = half & 0x7FFFu, sign = (half & 0x8000u) << 16;
        const float scaled = float_of(size << 13) * 0x1p112f;   // denormals get their place too
        const uint32_t bits = size >= infinity ? 0x7F800000u | size << 13 : bits_of(scaled);
        return float_of(bits | sign);
    }
    static PEERLANE_INLINE uint16_t narrow(float value) {
        const uint32_t bits = bits_of(value), size = bits & 0x7FFFFFFFu, sign = (bits ^ size) >> 16;
        const uint32_t normal = (size - (112u << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
        const uint32_t denormal = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);   // the addition rounds
        const uint32_t no_number = 0x7E00u | (size >> 13 & 0x3FF);
        const uint32_t small = size < 113u << 23 ? denormal : normal;
        const uint32_t large = size > 0x7F800000u ? no_number : infinity;
        return static_cast<uint16_t>(sign | (size >= 143u << 23 ? large : small));
    }
};

struct Brain {
    static constexpr uint16_t infinity = 0x7F80, quiet = 0x40;
    static constexpr bool keeps_first_zero = false;

    static PEERLANE_INLINE float widen(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }
    static PEERLANE_INLINE uint16_t narrow(float value) {
        const uint32_t bits = bits_of(value);
        const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1), no_number = bits | quiet << 16;
        return static_cast<uint16_t>(((bits & 0x7FFFFFFFu) > 0x7F800000u ? no_number : rounded) >> 16);
    }
};

template <class Format>
struct Short {
    using Stored = uint16_t;

    static PEERLANE_INLINE bool is_nan(uint16_t half) { return static_cast<uint16_t>(half & 0x7FFF) > Format::infinity; }
    // As whole numbers that compare as the values do; both zeros are 0.
    static PEERLANE_INLINE int16_t rank(uint16_t half) {
        const auto size = static_cast<int16_t>(half & 0x7FFF);
        return static_cast<int16_t>(half) < 0 ? static_cast<int16_t>(-size) : size;
    }

    template <Combine op>
    static PEERLANE_INLINE uint16_t of(uint16_t a, uint16_t b) {
        if constexpr (op == Combine::sum || op == Combine::prod)
            return Format::narrow(Single::of<op>(Format::widen(a), Format::widen(b)));
        const int16_t left = op == Combine::max ? rank(a) : rank(b), right = op == Combine::max ? rank(b) : rank(a);
        const bool wins = Format::keeps_first_zero ? left >= right : left > right;
        const uint16_t result = is_nan(a) | (wins & !is_nan(b)) ? a : b;
        return is_nan(result) ? static_cast<uint16_t>(result | Format::quiet) : result;
    }
};

template <class Kind, Combine op>
PEERLANE_INLINE void each(char* dst, const char* src, size_t n) {
    using T = typename Kind::Stored;
    T* const to = reinterpret_cast<T*>(dst);
    const T* const from = reinterpret_cast<const T*>(src);
#pragma GCC ivdep
    for (size_t i = 0; i < n; ++i) to[i] = Kind::template of<op>(to[i], from[i]);
}

struct Plain {
    template <class Kind, Combine op>
    static void run(char* dst, const char* src, size_t n) {
        each<Kind, op>(dst, src, n);
    }
};

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
             Whole<uint32_t>, Whole<uint64_t>, Short<Half>, Short<Brain>, Single, Double>();

}  // namespace

std::vector<const Reductions*> all_reductions() {
    return {&kTable<Plain>};
}

const Reductions& reductions() {
    static const Reductions& best = *all_reductions().front();
    return best;
}

}  // namespace peerlane
