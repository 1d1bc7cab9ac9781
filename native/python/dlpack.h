// Tensors of other libraries, as DLPack lends them.  The structures are its binary interface, version 1.
#pragma once
#include <cstddef>
#include <cstdint>

namespace peerlane::dlpack {

struct Device {
    int32_t type, number;
};
struct Element {
    uint8_t code, bits;
    uint16_t lanes;
};
struct Tensor {
    void* data;
    Device device;
    int32_t axes;
    Element element;
    int64_t* shape;
    int64_t* strides;   // in elements; null: contiguous
    uint64_t byte_offset;
};
struct Managed {   // capsule "dltensor"
    Tensor tensor;
    void* context;
    void (*deleter)(Managed*);
};
struct ManagedVersioned {   // capsule "dltensor_versioned"
    struct {
        uint32_t major, minor;
    } version;
    void* context;
    void (*deleter)(ManagedVersioned*);   // of other major versions nothing behind it may be read
    uint64_t flags;
    Tensor tensor;
};
static_assert(sizeof(Tensor) == 48 && sizeof(Managed) == 64 && sizeof(ManagedVersioned) == 80);
static_assert(offsetof(Tensor, byte_offset) == 40 && offsetof(ManagedVersioned, tensor) == 32);

constexpr uint32_t kMajor = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2, kPadded = 4;
constexpr int32_t kMostAxes = 256;   // more is taken for garbage

enum class Flaw : uint8_t {
    none, version, device, opaque, malformed, too_large, part_of_byte, no_data, strided, copied,
};

struct Extent {
    Flaw flaw;
    uint64_t address = 0, size = 0;   // of what has no flaw
};

// Whether the axes can be read, and the shape; says nothing of what they hold.
bool has_axes(const Tensor& tensor);
// Where the bytes of a contiguous tensor in host memory are.  Nothing in it is trusted but that its arrays have `axes` entries.
Extent measure(const Tensor& tensor, uint64_t flags);

}  // namespace peerlane::dlpack
