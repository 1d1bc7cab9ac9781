#include "python/dlpack.h"

namespace peerlane::dlpack {

namespace {

constexpr int32_t kCpu = 1, kPinnedByCuda = 3, kPinnedByRocm = 11;
constexpr uint8_t kOpaqueHandle = 3;

bool is_contiguous(const Tensor& tensor) {
    if (!tensor.strides) return true;
    int64_t wanted = 1;
    for (int32_t axis = tensor.axes; axis-- > 0;) {
        if (tensor.shape[axis] != 1 && tensor.strides[axis] != wanted) return false;
        wanted *= tensor.shape[axis];   // their product is known to fit
    }
    return true;
}

}  // namespace

bool has_axes(const Tensor& tensor) {
    return tensor.axes >= 0 && tensor.axes <= kMostAxes && (tensor.axes == 0 || tensor.shape);
}

Extent measure(const Tensor& tensor, uint64_t flags) {
    const int32_t device = tensor.device.type;
    if (device != kCpu && device != kPinnedByCuda && device != kPinnedByRocm) return {Flaw::device};
    const auto [code, bits, lanes] = tensor.element;
    if (!has_axes(tensor) || bits == 0 || lanes == 0) return {Flaw::malformed};
    if (code == kOpaqueHandle) return {Flaw::opaque};
    if (flags & kCopied) return {Flaw::copied};
    bool is_empty = false;
    for (int32_t axis = 0; axis < tensor.axes; ++axis) {
        if (tensor.shape[axis] < 0) return {Flaw::malformed};
        is_empty |= tensor.shape[axis] == 0;
    }
    const uint64_t data = reinterpret_cast<uint64_t>(tensor.data);
    if (is_empty) return {Flaw::none, data};

    int64_t elements = 1;
    for (int32_t axis = 0; axis < tensor.axes; ++axis)
        if (__builtin_mul_overflow(elements, tensor.shape[axis], &elements)) return {Flaw::too_large};
    // Types of less than a byte lie side by side, unless a flag gives each bytes of its own.
    const bool is_packed = bits < 8 && !(flags & kPadded);
    const int64_t each = int64_t{bits} * lanes;
    int64_t size;
    if (__builtin_mul_overflow(elements, is_packed ? each : (each + 7) / 8, &size)) return {Flaw::too_large};
    if (is_packed && size % 8 != 0) return {Flaw::part_of_byte};
    if (is_packed) size /= 8;
    if (!is_contiguous(tensor)) return {Flaw::strided};
    if (!data) return {Flaw::no_data};
    uint64_t address, end;
    if (__builtin_add_overflow(data, tensor.byte_offset, &address) ||
        __builtin_add_overflow(address, static_cast<uint64_t>(size), &end))
        return {Flaw::too_large};
    return {Flaw::none, address, static_cast<uint64_t>(size)};
}

}  // namespace peerlane::dlpack
