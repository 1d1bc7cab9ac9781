#include "streams.h"

namespace streams {

uint32_t new_device(bool routes_to_all) {
    static std::vector<uint32_t> open;
    const uint32_t device = Heap::get().add_device({.capacity = uint64_t{1} << 32}, nullptr, 0);
    if (!routes_to_all) return device;
    for (uint32_t other : open) {
        Heap::get().set_route(device, other, true);
        Heap::get().set_route(other, device, true);
    }
    open.push_back(device);
    return device;
}

void open_heap() { Heap::get().configure({.window_bytes = kTestWindow, .cache_bytes = 64 * kGranule}); }

Area area(uint32_t device, uint64_t size) {
    Heap& heap = Heap::get();
    Extent* extent = heap.allocate(device, size, false);
    char* host = heap.space().shadow(extent->offset);
    memset(host, 0, size);
    return {extent, extent->id.load(), heap.address_of(extent), size, host};
}

StreamPtr stream(uint32_t device, bool stops, std::shared_ptr<Group> group, bool legacy) {
    return engine().create(device, stops, std::move(group), legacy);
}

Submitted move(Stream& on, Op op, Operand& dst, Operand* src) {
    op.dst = dst.host();
    op.dst_extent = dst.range().extent;
    if (src) {
        op.src = src->host();
        op.src_extent = src->range().extent;
    }
    const Submitted done = engine().submit(on, op);
    dst.hand_over();
    if (src) src->hand_over();
    return done;
}

Submitted copy(Stream& on, uint64_t dst, uint64_t src, uint64_t size, bool direct) {
    Operand to("dst", dst, size), from("src", src, size);
    return move(on, {.kind = OpKind::copy, .direct = direct, .size = size}, to, &from);
}

Submitted reduce(Stream& on, uint64_t dst, uint64_t src, uint64_t count, const Reduction& reduction,
                 bool direct) {
    const uint64_t size = reduced_size(dst, src, count, reduction);
    Operand to("dst", dst, size), from("src", src, size);
    return move(on, {.kind = OpKind::reduce, .direct = direct, .size = size, .reduction = &reduction}, to, &from);
}

Submitted fill(Stream& on, uint64_t dst, uint8_t byte, uint64_t size) {
    Operand to("dst", dst, size);
    return move(on, {.kind = OpKind::fill, .size = size, .value = byte}, to, nullptr);
}

Submitted write(Stream& on, uint64_t dst, uint64_t value) {
    Operand to("dst", dst, 8);
    return move(on, {.kind = OpKind::write_value, .width = 8, .size = 8, .value = value}, to, nullptr);
}

Submitted wait_value(Stream& on, uint64_t at, uint64_t value, uint64_t timeout_ns) {
    Operand to("address", at, 8);
    auto wanted = std::make_unique<ValueWait>();
    wanted->value = value;
    wanted->mask = UINT64_MAX;
    wanted->timeout_ns = timeout_ns;
    wanted->compare = Compare::geq;
    const Submitted done = move(on, {.kind = OpKind::wait_value, .width = 8, .size = 8, .extra = wanted.get()}, to, nullptr);
    wanted.release();
    return done;
}

Submitted copy_2d(Stream& on, uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width,
                  uint64_t height) {
    auto shape = std::make_unique<Rectangle>();
    shape->dst_pitch = dst_pitch;
    shape->src_pitch = src_pitch;
    shape->width = width;
    shape->height = height;
    Operand to("dst", dst, pitched_span("dst", dst_pitch, width, height));
    Operand from("src", src, pitched_span("src", src_pitch, width, height));
    const Submitted done = move(on, {.kind = OpKind::copy_2d, .size = to.size, .extra = shape.get()}, to, &from);
    shape.release();
    return done;
}

Submitted batch(Stream& on, const std::vector<Part>& parts) {
    auto list = std::make_unique<Batch>();
    PinList pins(*list);
    for (const Part& part : parts) {
        const Range dst = pins.dst(part.dst, part.size);
        pins.add(dst, pins.src(part.src, part.size), part.size, false);
    }
    const Submitted done = engine().submit(on, {.kind = OpKind::batch, .extra = list.get()});
    list.release();
    return done;
}

Submitted launch(Stream& on, const Area& table, uint64_t size, uint32_t only_device, bool direct) {
    auto launch = std::make_unique<Launch>();
    launch->table_size = size;
    launch->only_device = only_device;
    Operand operand("address", table.address, size);
    const Submitted done =
        move(on, {.kind = OpKind::descriptor, .direct = direct, .size = size, .extra = launch.get()}, operand, nullptr);
    launch.release();
    return done;
}

Submitted free_in_order(Stream& on, const Area& what) {
    return engine().submit(on, {.kind = OpKind::free, .dst_extent = what.extent, .value = what.id});
}

Submitted notify(Stream& on, Notify* what) {
    return submit_holding(on, what, [&] { return Op{.kind = OpKind::notify, .notify = what}; });
}

Submitted await(Stream& on, Notify* what, uint64_t timeout_ns) {
    return submit_holding(on, what, [&] {
        return Op{.kind = OpKind::wait_notify, .notify = what, .timeout_ns = timeout_ns};
    });
}

Submitted callback(Stream& on, CallbackQueue* queue, uint64_t token) {
    return submit_holding(on, queue, [&] { return Op{.kind = OpKind::callback, .callbacks = queue, .value = token}; });
}

void order(Stream& before, Stream& after) {
    const Record record(before);
    engine().wait(after, *record.mark, 0);
}

void sync(Stream& on) {
    CHECK(engine().synchronize(on, Deadline::in(kPatience), {}) == Outcome::reached);
}

void finish(Stream& on) {
    sync(on);
    const FailurePtr failure = engine().take_failure(on);
    if (failure) std::fprintf(stderr, "stream %llu: operation %llu failed: %d\n", static_cast<unsigned long long>(failure->stream),
                              static_cast<unsigned long long>(failure->sequence), static_cast<int>(failure->refusal.why));
    CHECK(!failure);
}

void close(Stream& on) { CHECK(engine().close(on, true, {}) == Outcome::reached); }

bool failed_with(Stream& on, Why why) {
    const FailurePtr failure = engine().take_failure(on);
    return failure && failure->refusal.why == why;
}

}  // namespace streams
