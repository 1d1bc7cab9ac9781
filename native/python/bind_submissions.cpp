// Copies, fills, batches and descriptor launches given to a stream.
#include "python/bind_operands.h"
#include "stream/descriptor.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

using MemoryObject = nb::handle_t<Memory>;

const Memory& memory_of(nb::handle object) { return *nb::inst_ptr<Memory>(object); }

// Whether it can fail by itself, other than for want of pages: the place of what cannot is not asked for.
bool may_fail(const Op& op, nb::handle keep) {
    switch (op.kind) {
        case OpKind::copy:
        case OpKind::copy_2d:
        case OpKind::reduce:
            return !op.dst_extent || !op.src_extent || (op.direct && op.dst_extent->device != op.src_extent->device);
        case OpKind::fill:
        case OpKind::write_value:
            return !op.dst_extent;
        case OpKind::batch:
            return keep.is_valid();
        default:
            return true;
    }
}

}  // namespace

void hold(const Stream& stream, Op& op, const Range& dst, const Range& src) {
    const bool is_read = op.kind == OpKind::wait_value || op.kind == OpKind::descriptor;
    Heap::get().check_access(is_read ? Range{} : dst, is_read ? dst : src, stream.device);
    op.dst = dst.host;
    op.dst_extent = dst.extent;
    op.src = src.host;
    op.src_extent = src.extent;
}

void submit(const StreamHandle& stream, Op& op, nb::handle keep) {
    if (Scheduler::get().has_released()) [[unlikely]] release_kept();
    op.keep = keep.ptr();
    note_site();
    const bool may_look = log::wanted() && op.kind == OpKind::copy && (!op.dst_extent || op.dst_extent->device == kHost);
    const Marked marked(may_look ? flags_of_look(op.size) : uint8_t{0});
    const uint64_t site = may_fail(op, keep) ? call_site() : 0;
    const Submitted done = Scheduler::get().submit(*stream.stream, op, site);
    // Nobody gives it back without the GIL, so it is in time here.
    if (op.keep && !done.at_once) Py_INCREF(keep.ptr());
    for (uint32_t i = 0; i < done.watches; ++i) Py_INCREF(keep.ptr());
    log_if_observed();
}

void submit_nothing(const StreamHandle& stream) { Scheduler::get().submit_nothing(*stream.stream); }

nb::object kept(nb::handle dst, nb::handle src) {
    const bool first = dst.is_valid() && memory_of(dst).is_foreign(), second = src.is_valid() && memory_of(src).is_foreign();
    if (first && second) return nb::make_tuple(nb::borrow(dst), nb::borrow(src));
    return first ? nb::borrow(dst) : second ? nb::borrow(src) : nb::object();
}

void submit_move(const StreamHandle& stream, Op op, Operand& dst, Operand& src, nb::handle keep) {
    hold(*stream.stream, op, dst.range(), src.range());
    submit(stream, op, keep);
    dst.hand_over();
    src.hand_over();
}

void run_now(Batch& batch, const Operand* table) {
    const Task task = plan_pieces(batch.pieces);
    interruptible([&](Poll poll) { run_task(task, nullptr, 0, poll); });
    if (log::is_logging()) [[unlikely]] log_batch(batch, table);
}

namespace {

void submit_reduction(const StreamHandle& stream, Operand& dst, Operand& src, const Reduction& reduction, bool direct,
                      nb::handle keep) {
    check_reduced(dst, src, reduction);
    submit_move(stream, {.kind = OpKind::reduce, .direct = direct, .size = dst.size, .reduction = &reduction}, dst, src, keep);
}

void submit_rectangle(const StreamHandle& stream, Operand& dst, uint64_t dst_pitch, Operand& src, uint64_t src_pitch,
                      uint64_t width, uint64_t height, bool direct, nb::handle keep) {
    auto shape = std::make_unique<Rectangle>();
    shape->dst_pitch = dst_pitch;
    shape->src_pitch = src_pitch;
    shape->width = width;
    shape->height = height;
    submit_move(stream, {.kind = OpKind::copy_2d, .direct = direct, .size = dst.size, .extra = shape.get()}, dst, src, keep);
    shape.release();
}

// Types repeat: the same one is asked for once.
class MemoryTest {
  public:
    const Memory& operator()(PyObject* object) {
        if (Py_TYPE(object) != known_) {
            if (!nb::isinstance<Memory>(nb::handle(object))) throw nb::type_error("not a Memory");
            known_ = Py_TYPE(object);
        }
        return memory_of(object);
    }

  private:
    PyTypeObject* known_ = nullptr;
};

// Pins both lists' ranges into `batch`; the foreign memory among them is returned.
nb::object gather(Batch& batch, nb::list dsts, nb::list srcs) {
    PinList pins(batch);
    MemoryTest memory;
    nb::list foreign;
    const size_t count = nb::len(dsts);
    if (nb::len(srcs) != count) throw nb::value_error("as many sources as destinations");
    batch.pieces.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        PyObject* const dst = PyList_GET_ITEM(dsts.ptr(), i);
        PyObject* const src = PyList_GET_ITEM(srcs.ptr(), i);
        const Memory& to = memory(dst);
        const Memory& from = memory(src);
        if (to.size() != from.size())
            throw Refusal{.why = Why::size_mismatch, .size = from.size(), .other_size = to.size(), .entry = i + 1};
        if (to.is_foreign()) foreign.append(nb::handle(dst));
        if (from.is_foreign()) foreign.append(nb::handle(src));
        try {
            const Range target = pins.dst(to);
            pins.add(target, pins.src(from), to.size(), false);
        } catch (Refusal& refusal) {
            refusal.entry = i + 1;
            throw refusal;
        }
    }
    return nb::len(foreign) != 0 ? nb::object(foreign) : nb::object();
}

std::unique_ptr<Launch> launch_of(uint64_t table_size, uint32_t only_device) {
    auto launch = std::make_unique<Launch>();
    launch->table_size = table_size;
    launch->only_device = only_device;
    return launch;
}

}  // namespace

void bind_submissions(nb::module_& m) {
    m.def(
        "submit_copy",
        [](const StreamHandle& stream, nb::handle dst, nb::handle src) {
            if (!nb::isinstance<Memory>(dst) || !nb::isinstance<Memory>(src)) return false;
            const Memory& to = memory_of(dst);
            const Memory& from = memory_of(src);
            if (to.size() != from.size())
                throw Refusal{.why = Why::size_mismatch, .size = from.size(), .other_size = to.size()};
            Operand target = writable(to), source = readable(from);
            submit_move(stream, {.kind = OpKind::copy, .size = to.size()}, target, source, kept(dst, src));
            return true;
        },
        "stream"_a, "dst"_a.none(), "src"_a.none(),
        nb::sig("def submit_copy(stream: Stream, dst: typing.Any, src: typing.Any) -> bool"),
        "Copy all of `src` to `dst`, which must be as large, in stream order; False if one is no Memory, and then "
        "nothing happens.");
    m.def(
        "submit_copy_at",
        [](const StreamHandle& stream, uint64_t dst, uint64_t src, uint64_t size, bool direct) {
            Heap::get().check_usable();
            if (size == 0) return submit_nothing(stream);
            Operand target("dst", dst, size), source("src", src, size);
            submit_move(stream, {.kind = OpKind::copy, .direct = direct, .size = size}, target, source, nb::handle());
        },
        "stream"_a, "dst"_a, "src"_a, "size"_a, "direct"_a);
    m.def(
        "submit_copy_2d",
        [](const StreamHandle& stream, MemoryObject dst, uint64_t dst_pitch, MemoryObject src, uint64_t src_pitch,
           uint64_t width, uint64_t height) {
            if (width == 0 || height == 0) return submit_nothing(stream);
            const Memory& to = memory_of(dst);
            const Memory& from = memory_of(src);
            const uint64_t dst_span = checked_span(writable(to), dst_pitch, width, height);
            const uint64_t src_span = checked_span(readable(from), src_pitch, width, height);
            Operand target("dst", to.last_address(), dst_span, to.pin_writable());
            Operand source("src", from.last_address(), src_span, from.pin());
            submit_rectangle(stream, target, dst_pitch, source, src_pitch, width, height, false, kept(dst, src));
        },
        "stream"_a, "dst"_a, "dst_pitch"_a, "src"_a, "src_pitch"_a, "width"_a, "height"_a);
    m.def(
        "submit_copy_2d_at",
        [](const StreamHandle& stream, uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width,
           uint64_t height, bool direct) {
            Heap::get().check_usable();
            if (width == 0 || height == 0) return submit_nothing(stream);
            Operand target("dst", dst, pitched_span("dst", dst_pitch, width, height));
            Operand source("src", src, pitched_span("src", src_pitch, width, height));
            submit_rectangle(stream, target, dst_pitch, source, src_pitch, width, height, direct, nb::handle());
        },
        "stream"_a, "dst"_a, "dst_pitch"_a, "src"_a, "src_pitch"_a, "width"_a, "height"_a, "direct"_a);
    m.def(
        "submit_fill",
        [](const StreamHandle& stream, MemoryObject dst, uint64_t value, unsigned width) {
            const Memory& to = memory_of(dst);
            Operand target = writable(to);
            Op op{.kind = OpKind::fill, .width = static_cast<uint8_t>(width), .size = to.size(), .value = value};
            hold(*stream.stream, op, target.range(), {});
            submit(stream, op, kept(dst, nb::handle()));
            target.hand_over();
        },
        "stream"_a, "dst"_a, "value"_a, "width"_a);
    m.def(
        "submit_fill_at",
        [](const StreamHandle& stream, uint64_t dst, uint64_t value, unsigned width, uint64_t count) {
            Heap::get().check_usable();
            uint64_t size;
            if (__builtin_mul_overflow(count, uint64_t{width}, &size))
                throw Refusal{.why = Why::overflow, .role = "dst", .address = dst, .size = count};
            if (size == 0) return submit_nothing(stream);
            Operand target("dst", dst, size);
            Op op{.kind = OpKind::fill, .width = static_cast<uint8_t>(width), .size = size, .value = value};
            hold(*stream.stream, op, target.range(), {});
            submit(stream, op, nb::handle());
            target.hand_over();
        },
        "stream"_a, "dst"_a, "value"_a, "width"_a, "count"_a);
    m.def(
        "submit_reduce",
        [](const StreamHandle& stream, nb::handle dst, nb::handle src, unsigned number) {
            if (!nb::isinstance<Memory>(dst) || !nb::isinstance<Memory>(src)) return false;
            Operand target = writable(memory_of(dst)), source = readable(memory_of(src));
            submit_reduction(stream, target, source, reduction_numbered(number), false, kept(dst, src));
            return true;
        },
        "stream"_a, "dst"_a.none(), "src"_a.none(), "number"_a,
        nb::sig("def submit_reduce(stream: Stream, dst: typing.Any, src: typing.Any, number: int) -> bool"),
        "As reduce_memory, on a stream.");
    m.def(
        "submit_reduce_at",
        [](const StreamHandle& stream, uint64_t dst, uint64_t src, uint64_t count, unsigned number, bool direct) {
            Heap::get().check_usable();
            const Reduction& reduction = reduction_numbered(number);
            const uint64_t size = reduced_size(dst, src, count, reduction);
            if (size == 0) return submit_nothing(stream);
            Operand target("dst", dst, size), source("src", src, size);
            submit_reduction(stream, target, source, reduction, direct, nb::handle());
        },
        "stream"_a, "dst"_a, "src"_a, "count"_a, "number"_a, "direct"_a);
    m.def(
        "submit_write_value",
        [](const StreamHandle& stream, uint64_t address, uint64_t value, unsigned width) {
            Heap::get().check_usable();
            Operand target("dst", address, width);
            Op op{.kind = OpKind::write_value, .width = static_cast<uint8_t>(width), .size = width, .value = value};
            hold(*stream.stream, op, target.range(), {});
            submit(stream, op, nb::handle());
            target.hand_over();
        },
        "stream"_a, "address"_a, "value"_a, "width"_a);
    m.def(
        "submit_write_word",
        [](const StreamHandle& stream, nb::handle_t<Memory> dst, uint64_t value) {
            Heap::get().check_usable();
            Operand target = writable(memory_of(dst));
            if (target.size != sizeof value || reinterpret_cast<uintptr_t>(target.host()) % sizeof value != 0)
                throw nb::value_error("a word is 8 bytes, at a multiple of 8");
            Op op{.kind = OpKind::write_value, .width = sizeof value, .size = sizeof value, .value = value};
            hold(*stream.stream, op, target.range(), {});
            submit(stream, op, kept(dst, nb::handle()));
            target.hand_over();
        },
        "stream"_a, "dst"_a, "value"_a, nb::sig("def submit_write_word(stream: Stream, dst: Memory, value: int) -> None"));
    m.def(
        "submit_wait_value",
        [](const StreamHandle& stream, uint64_t address, uint64_t value, uint64_t mask, int compare, unsigned width,
           uint64_t timeout_ns, bool pageable) {
            Heap::get().check_usable();
            Operand target("address", address, width);
            if (target.is_pageable() && !pageable) throw Refusal{.why = Why::unknown_address, .role = "address", .address = address, .size = width};
            auto wanted = std::make_unique<ValueWait>();
            wanted->value = value;
            wanted->mask = mask;
            wanted->timeout_ns = timeout_ns;
            wanted->compare = static_cast<Compare>(compare);
            Op op{.kind = OpKind::wait_value, .width = static_cast<uint8_t>(width), .size = width, .extra = wanted.get()};
            hold(*stream.stream, op, target.range(), {});
            submit(stream, op, nb::handle());
            target.hand_over();
            wanted.release();
        },
        "stream"_a, "address"_a, "value"_a, "mask"_a, "compare"_a, "width"_a, "timeout_ns"_a, "pageable"_a,
        "`compare`: 0 at least, 1 equal, 2 and, 3 nor, 4 since.  `pageable`: whether the word may be the caller's to keep.");
    m.def(
        "copy_batch",
        [](const StreamHandle* stream, nb::list dsts, nb::list srcs) {
            Heap::get().check_usable();
            auto batch = std::make_unique<Batch>();
            if (stream) batch->actor = stream->stream->device;
            const nb::object keep = gather(*batch, dsts, srcs);
            if (!stream) {
                run_now(*batch, nullptr);
                return;
            }
            Op op{.kind = OpKind::batch, .extra = batch.get()};
            submit(*stream, op, keep);
            batch.release();
        },
        "stream"_a.none(), "dsts"_a, "srcs"_a,
        nb::sig("def copy_batch(stream: Stream | None, dsts: list[typing.Any], srcs: list[typing.Any]) -> None"), "Copy every source to the destination of the same place; as many, as large.");
    m.def(
        "launch_descriptor",
        [](const StreamHandle* stream, uint64_t table, uint64_t size, bool direct, uint32_t only_device) {
            Heap::get().check_usable();
            Operand operand("address", table, size);
            auto launch = launch_of(size, only_device);
            if (stream) launch->actor = stream->stream->device;
            if (!stream) {
                Heap::get().check_access({}, operand.range(), kHost);
                launch->read(operand.host(), direct);
                run_now(*launch, &operand);
                return;
            }
            Op op{.kind = OpKind::descriptor, .direct = direct, .size = size, .extra = launch.get()};
            hold(*stream->stream, op, operand.range(), {});
            submit(*stream, op, nb::handle());
            operand.hand_over();
            launch.release();
        },
        "stream"_a.none(), "table"_a, "size"_a, "direct"_a, "only_device"_a, "Run the copy list that lies at `table` when it starts.");
}
