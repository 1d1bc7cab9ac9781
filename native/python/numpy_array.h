// Plain arrays of NumPy, read without a call of NumPy: the fields of PyArrayObject and PyArray_Descr, which NumPy's C API documents.
#pragma once
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace peerlane::numpy {

// The codes of plain elements, which the buffer protocol has, too.
constexpr std::string_view kPlain = "?bBhHiIlLqQefd";

struct PlainArray {
    uint64_t address, bytes;
    bool is_read_only;
    bool owns_bytes;   // they are the process's own memory, not a file's
};

namespace detail {

struct Elements {
    PyObject_HEAD
    PyObject* type;
    char kind, code, order;
};
struct Array {
    PyObject_HEAD
    char* data;
    int dimensions;
    Py_ssize_t *shape, *strides;
    PyObject* base;
    Elements* elements;
    int flags;
};
constexpr int kContiguous = 0x1, kOwnsBytes = 0x4, kWritable = 0x400;

constexpr uint64_t width_of(char code) {
    constexpr uint8_t widths[] = {1, 1, 1, 2, 2, 4, 4, sizeof(long), sizeof(long), 8, 8, 2, 4, 8};
    const size_t at = kPlain.find(code);
    return at == std::string_view::npos ? 0 : widths[at];
}

inline std::optional<PlainArray> read(PyObject* object, PyTypeObject* type) {
    const auto* const array = reinterpret_cast<const Array*>(object);
    const Elements& elements = *array->elements;
    uint64_t bytes = width_of(elements.code);
    if (bytes == 0 || elements.order == '>' || !(array->flags & kContiguous)) return std::nullopt;
    for (int axis = 0; axis < array->dimensions; ++axis) bytes *= static_cast<uint64_t>(array->shape[axis]);
    const bool is_part = array->base && Py_IS_TYPE(array->base, type);   // of another array: NumPy names the first one of a chain
    const int owner = is_part ? reinterpret_cast<const Array*>(array->base)->flags : array->flags;
    return PlainArray{reinterpret_cast<uint64_t>(array->data), bytes, !(array->flags & kWritable), (owner & kOwnsBytes) != 0};
}

}  // namespace detail

// The fields are believed once the buffer protocol has said the same of an array.
class Reader {
  public:
    // Nothing: it is no plain array, or the fields are not believed yet.  `type` is NumPy's.
    std::optional<PlainArray> read(PyObject* object, PyTypeObject* type) const {
        return trust_ == Trust::yes ? detail::read(object, type) : std::nullopt;
    }
    void compare(PyObject* object, PyTypeObject* type, const Py_buffer& view) {
        if (trust_ != Trust::unknown || type->tp_basicsize < static_cast<Py_ssize_t>(sizeof(detail::Array))) return;
        const auto fields = detail::read(object, type);
        const bool is_same = fields && fields->address == reinterpret_cast<uint64_t>(view.buf) && fields->bytes == static_cast<uint64_t>(view.len) &&
                             fields->is_read_only == (view.readonly != 0);
        trust_ = is_same ? Trust::yes : Trust::no;
    }

  private:
    enum class Trust : uint8_t { unknown, yes, no } trust_ = Trust::unknown;
};

}  // namespace peerlane::numpy
