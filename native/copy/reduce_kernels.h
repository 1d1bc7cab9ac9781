// Element by element: dst = first OP second, on one thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace peerlane {

enum class Element : uint8_t {
    int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
};
enum class Combine : uint8_t { sum, prod, max, min };
constexpr unsigned kElements = 14, kCombines = 4;

// `n` elements.  All places are multiples of the element's size.  The destination is one of the other two, or apart from both.
using ReduceKernel = void (*)(char* dst, const char* first, const char* second, size_t n);

struct Reduction {
    ReduceKernel kernel;
    unsigned width;   // bytes of an element
};

using Reductions = std::array<std::array<Reduction, kCombines>, kElements>;

// Integers wrap.  float16 and bfloat16 are widened to float32 and rounded once, to the nearest even.  Of two that are no
// numbers the first counts.  Maxima and minima are one of both, bit by bit, but that bfloat16 gets quiet; of two
// zeros float16 keeps the first, the others the second.  Elements of 8 bits are widened, too; sums and products beyond the
// largest number are that number, and those that are no numbers are 0x7F.  Same bits whatever the processor, the length and the place.
const Reductions& reductions();
inline const Reduction& reduction_of(Element element, Combine op) {
    return reductions()[static_cast<unsigned>(element)][static_cast<unsigned>(op)];
}

// All levels of this processor, the best first: the one that reductions() is.
std::vector<const Reductions*> all_reductions();

}  // namespace peerlane
