// What channels do in one call: bytes to a place in a peer's memory, and lists of them.
#include <cstring>

#include "python/bind_operands.h"
#include "stream/descriptor.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

// The bytes of a list of numbers, whatever exports them.
class Numbers {
  public:
    explicit Numbers(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    ~Numbers() { PyBuffer_Release(&view_); }
    Numbers(const Numbers&) = delete;
    uint64_t size() const { return static_cast<uint64_t>(view_.len); }
    const char* data() const { return static_cast<const char*>(view_.buf); }

  private:
    Py_buffer view_{};
};

struct BlockEntry {
    uint64_t dst_at, src_at, size;
};

void check_part(const char* role, const Memory& memory, uint64_t at, uint64_t size, uint64_t entry) {
    if (at > memory.size() || size > memory.size() - at)
        throw Refusal{.why = Why::out_of_bounds, .role = role, .address = memory.last_address() + at, .size = size,
                      .within = {memory.last_address(), memory.size(), memory.id()}, .entry = entry + 1};
}

// Both ends are pinned whole, once; the entries are numbers in them.
void fill_batch(Batch& batch, const Memory& dst, const Memory& src, const Numbers& table) {
    PinList pins(batch);
    const uint64_t count = table.size() / sizeof(BlockEntry);
    batch.pieces.reserve(count);
    if (count == 0) return;
    const Range to = pins.dst(dst), from = pins.src(src);
    Heap::get().check_access(to, from, batch.actor);
    const bool staged = needs_staging(to, from, false);
    for (uint64_t i = 0; i < count; ++i) {
        BlockEntry entry;
        memcpy(&entry, table.data() + i * sizeof entry, sizeof entry);
        check_part("dst", dst, entry.dst_at, entry.size, i);
        check_part("src", src, entry.src_at, entry.size, i);
        batch.pieces.push_back({to.host + entry.dst_at, from.host + entry.src_at, entry.size, staged});
    }
}

}  // namespace

void move_memory(const StreamHandle* stream, const Memory& dst, const Memory& src, nb::handle dst_object, nb::handle src_object) {
    Operand target = writable(dst), source = readable(src);
    const uint64_t size = dst.size();
    if (stream && size == 0) {
        submit_nothing(*stream);
    } else if (stream) {
        submit_move(*stream, {.kind = OpKind::copy, .size = size}, target, source, kept(dst_object, src_object));
    } else {
        if (Turns::is_on()) [[unlikely]] Turns::point();
        move_logged(OpKind::copy, target, &source, [&] {
            if (size <= kBrief)
                copy(target, source, size);
            else
                interruptible([&](Poll poll) { copy(target, source, size, false, poll); });
        });
    }
}

void bind_channels(nb::module_& m) {
    m.def(
        "put",
        [](const StreamHandle* stream, nb::handle_t<Memory> dst, uint64_t at, nb::handle_t<Memory> src) {
            const Memory& source = *nb::inst_ptr<Memory>(src);
            move_memory(stream, Memory(*nb::inst_ptr<Memory>(dst), at, source.size()), source, dst, src);
        },
        "stream"_a.none(), "dst"_a, "at"_a, "src"_a,
        nb::sig("def put(stream: Stream | None, dst: Memory, at: int, src: Memory) -> None"),
        "Copy all of `src` to byte `at` of `dst`.");
    m.def(
        "get",
        [](const StreamHandle* stream, nb::handle_t<Memory> dst, nb::handle_t<Memory> src, uint64_t at) {
            const Memory& target = *nb::inst_ptr<Memory>(dst);
            move_memory(stream, target, Memory(*nb::inst_ptr<Memory>(src), at, target.size()), dst, src);
        },
        "stream"_a.none(), "dst"_a, "src"_a, "at"_a,
        nb::sig("def get(stream: Stream | None, dst: Memory, src: Memory, at: int) -> None"),
        "Copy to all of `dst` from byte `at` of `src`.");
    m.def(
        "copy_blocks",
        [](const StreamHandle* stream, nb::handle_t<Memory> dst, nb::handle_t<Memory> src, nb::handle table) {
            Heap::get().check_usable();
            const Numbers numbers(table);
            if (numbers.size() % sizeof(BlockEntry) != 0) throw nb::value_error("an entry has 24 bytes");
            auto batch = std::make_unique<Batch>();
            if (stream) batch->actor = stream->stream->device;
            fill_batch(*batch, *nb::inst_ptr<Memory>(dst), *nb::inst_ptr<Memory>(src), numbers);
            if (!stream) return run_now(*batch, nullptr);
            if (batch->pieces.empty()) return submit_nothing(*stream);
            Op op{.kind = OpKind::batch, .extra = batch.get()};
            submit(*stream, op, kept(dst, src));
            batch.release();
        },
        "stream"_a.none(), "dst"_a, "src"_a, "table"_a,
        nb::sig("def copy_blocks(stream: Stream | None, dst: Memory, src: Memory, table: typing.Any) -> None"),
        "Copy blocks; an entry of `table` is 3 words: first byte in `dst`, first byte in `src`, bytes.");
}
