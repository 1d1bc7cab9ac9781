#include <algorithm>

#include "copy/kernels.h"
#include "python/bind_operands.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

// `size` is what decides whether the GIL is given away: below, the work is shorter than taking it back.
template <class Work>
void released(uint64_t size, const Work& work) {
    if (Turns::is_on()) [[unlikely]] Turns::point();
    if (size <= kBrief) {
        work(Poll{});
        return;
    }
    interruptible(work);
}

// An address, or an object's buffer, which is held as long.
class HostOperand {
  public:
    HostOperand(nb::handle object, uint64_t size) {
        if (PyLong_CheckExact(object.ptr())) {
            address_ = nb::cast<uint64_t>(object);
            return;
        }
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_ANY_CONTIGUOUS) != 0) throw nb::python_error();
        address_ = reinterpret_cast<uint64_t>(view_.buf);
        if (size > static_cast<uint64_t>(view_.len)) {
            PyBuffer_Release(&view_);
            throw nb::type_error("the buffer is smaller");
        }
    }
    HostOperand(const HostOperand&) = delete;
    ~HostOperand() {
        if (is_buffer()) PyBuffer_Release(&view_);
    }
    uint64_t address() const { return address_; }
    bool is_buffer() const { return view_.obj != nullptr; }

  private:
    Py_buffer view_{};
    uint64_t address_;
};

void reduce_now(const Operand& to, const Operand& from, const Reduction& reduction, bool direct) {
    check_reduced(to, from, reduction);
    move_logged(OpKind::reduce, to, &from, [&] { released(to.size, [&](Poll poll) { reduce(to, from, reduction, direct, poll); }); });
}

}  // namespace

void bind_copies(nb::module_& m) {
    m.def(
        "copy",
        [](uint64_t dst, uint64_t src, uint64_t size, bool direct) {
            if (log::is_logging() && size != 0) [[unlikely]] {
                Heap::get().check_usable();
                const Operand to("dst", dst, size), from("src", src, size);
                return move_logged(OpKind::copy, to, &from, [&] { released(size, [&](Poll poll) { copy(to, from, size, direct, poll); }); });
            }
            released(size, [=](Poll poll) { copy(dst, src, size, direct, poll); });
        },
        "dst"_a, "src"_a, "size"_a, "direct"_a = false, "Copy between any two addresses; the GIL is released above 256 KiB.");
    m.def(
        "copy_if_alone",
        [](const StreamHandle& handle, nb::handle dst, nb::handle src, uint64_t size, bool within) {
            const Stream& stream = *handle.stream;
            Heap::get().check_usable();
            if (!stream.is_settled()) return false;
            const HostOperand destination(dst, size), source(src, size);
            const Operand to("dst", destination.address(), size, destination.is_buffer());
            const Operand from("src", source.address(), size, source.is_buffer());
            const bool is_to = to.range().device == stream.device, is_from = from.range().device == stream.device;
            if (within ? !(is_to && is_from) : !(is_to || is_from)) return false;
            move_logged(OpKind::copy, to, &from, [&] { released(size, [&](Poll poll) { copy(to, from, size, false, poll); }); });
            return true;
        },
        "stream"_a, "dst"_a, "src"_a, "size"_a, "within"_a,
        nb::sig("def copy_if_alone(stream: Stream, dst: typing.Any, src: typing.Any, size: int, within: bool) -> bool"),
        "Copy between two places, each an address or an object with a buffer, if the streams of the group have nothing to do, "
        "this one has no failure to report, and one end, or both if `within`, lies on its device; else return False, and nothing "
        "happens.");
    m.def(
        "copy_memory",
        [](nb::handle dst_object, nb::handle src_object) {
            if (!nb::isinstance<Memory>(dst_object) || !nb::isinstance<Memory>(src_object)) return false;
            const Memory& dst = *nb::inst_ptr<Memory>(dst_object);
            const Memory& src = *nb::inst_ptr<Memory>(src_object);
            const uint64_t size = src.size();
            const Operand to = writable(dst), from = readable(src);
            if (size != dst.size()) throw Refusal{.why = Why::size_mismatch, .size = size, .other_size = dst.size()};
            move_logged(OpKind::copy, to, &from, [&] { released(size, [&](Poll poll) { copy(to, from, size, false, poll); }); });
            return true;
        },
        "dst"_a.none(), "src"_a.none(), nb::sig("def copy_memory(dst: typing.Any, src: typing.Any) -> bool"),
        "Copy all of `src` to `dst`, which must be as large; False if one is no Memory, and then nothing happens.");
    m.def(
        "copy_memory_2d",
        [](const Memory& dst, uint64_t dst_pitch, const Memory& src, uint64_t src_pitch, uint64_t width, uint64_t height) {
            const Operand to = writable(dst), from = readable(src);
            if (width == 0 || height == 0) return;
            checked_span(to, dst_pitch, width, height);
            checked_span(from, src_pitch, width, height);
            released(to.size + from.size, [&](Poll poll) {
                copy_2d(to, dst_pitch, from, src_pitch, width, height, false, poll);
            });
            if (log::is_logging()) [[unlikely]] log_rectangle(to, dst_pitch, from, src_pitch, width, height);
        },
        "dst"_a, "dst_pitch"_a, "src"_a, "src_pitch"_a, "width"_a, "height"_a);
    m.def(
        "fill_memory",
        [](const Memory& dst, uint64_t value, unsigned width) {
            const Operand to = writable(dst);
            move_logged(OpKind::fill, to, nullptr, [&] { released(dst.size(), [&](Poll poll) { fill(to, value, width, dst.size() / width, poll); }); });
        },
        "dst"_a, "value"_a, "width"_a, "Fill all of `dst`, a multiple of `width` bytes.");
    m.def(
        "copy_2d",
        [](uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width, uint64_t height,
           bool direct) {
            // The span, not the bytes: narrow rows far apart take as long as wide ones.
            const uint64_t span = height == 0 ? 0 : std::max(dst_pitch, src_pitch);
            uint64_t size;
            if (__builtin_mul_overflow(span, height, &size)) size = UINT64_MAX;
            if (log::is_logging() && width != 0 && height != 0) [[unlikely]] {
                Heap::get().check_usable();
                const Operand to("dst", dst, pitched_span("dst", dst_pitch, width, height));
                const Operand from("src", src, pitched_span("src", src_pitch, width, height));
                released(size, [&](Poll poll) { copy_2d(to, dst_pitch, from, src_pitch, width, height, direct, poll); });
                return log_rectangle(to, dst_pitch, from, src_pitch, width, height);
            }
            released(size, [=](Poll poll) { copy_2d(dst, dst_pitch, src, src_pitch, width, height, direct, poll); });
        },
        "dst"_a, "dst_pitch"_a, "src"_a, "src_pitch"_a, "width"_a, "height"_a,
        "direct"_a = false);
    m.def(
        "fill",
        [](uint64_t dst, uint64_t value, unsigned width, uint64_t count) {
            uint64_t size;
            if (__builtin_mul_overflow(uint64_t{width}, count, &size)) size = UINT64_MAX;
            if (log::is_logging() && size != 0 && size != UINT64_MAX) [[unlikely]] {
                Heap::get().check_usable();
                const Operand to("dst", dst, size);
                return move_logged(OpKind::fill, to, nullptr, [&] { released(size, [&](Poll poll) { fill(to, value, width, count, poll); }); });
            }
            released(size, [=](Poll poll) { fill(dst, value, width, count, poll); });
        },
        "dst"_a, "value"_a, "width"_a, "count"_a);
    m.def(
        "reduce",
        [](uint64_t dst, uint64_t src, uint64_t count, unsigned number, bool direct) {
            const Reduction& reduction = reduction_numbered(number);
            Heap::get().check_usable();
            const uint64_t size = reduced_size(dst, src, count, reduction);
            if (size == 0) return;
            const Operand to("dst", dst, size), from("src", src, size);
            reduce_now(to, from, reduction, direct);
        },
        "dst"_a, "src"_a, "count"_a, "number"_a, "direct"_a = false, "`number`: four times the type, plus the operation.");
    m.def(
        "reduce_memory",
        [](nb::handle dst, nb::handle src, unsigned number) {
            if (!nb::isinstance<Memory>(dst) || !nb::isinstance<Memory>(src)) return false;
            const Operand to = writable(*nb::inst_ptr<Memory>(dst)), from = readable(*nb::inst_ptr<Memory>(src));
            reduce_now(to, from, reduction_numbered(number), false);
            return true;
        },
        "dst"_a.none(), "src"_a.none(), "number"_a,
        nb::sig("def reduce_memory(dst: typing.Any, src: typing.Any, number: int) -> bool"),
        "As `reduce`, all of `src` into `dst`; False if one is no Memory, and then nothing happens.");
    m.def("has_stream_copy", &has_stream_copy, "Return whether this processor has non-temporal copies.");
}
