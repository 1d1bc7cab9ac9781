// What the tests of streams share: memory, operations in one line, waits that end, all schedules.
#pragma once
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "stream/descriptor.h"
#include "stream/scheduler.h"

namespace streams {

using namespace peerlane;

inline constexpr double kPatience = 60;   // seconds; what takes longer hangs

inline uint32_t new_device(bool routes_to_all = true) {
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

inline void open_heap() { Heap::get().configure({.window_bytes = kTestWindow, .cache_bytes = 64 * kGranule}); }

struct Area {
    Extent* extent = nullptr;
    uint64_t id = 0, address = 0, size = 0;
    char* host = nullptr;

    uint64_t word(uint64_t i) const {
        uint64_t value;
        memcpy(&value, host + i * sizeof value, sizeof value);
        return value;
    }
    // Also while a stream may write it.
    uint64_t peek(uint64_t i) const {
        return std::atomic_ref(reinterpret_cast<uint64_t*>(host)[i]).load(std::memory_order_relaxed);
    }
    void set(uint64_t i, uint64_t value) const { memcpy(host + i * sizeof value, &value, sizeof value); }
    void close() const { Heap::get().retire(extent, id); }
};

inline Area area(uint32_t device, uint64_t size) {
    Heap& heap = Heap::get();
    Extent* extent = heap.allocate(device, size, false);
    char* host = heap.space().shadow(extent->offset);
    memset(host, 0, size);
    return {extent, extent->id.load(), heap.address_of(extent), size, host};
}

inline Scheduler& engine() { return Scheduler::get(); }

inline StreamPtr stream(uint32_t device, bool stops = true, std::shared_ptr<Group> group = nullptr, bool legacy = false) {
    return engine().create(device, stops, std::move(group), legacy);
}

inline Submitted move(Stream& on, Op op, Operand& dst, Operand* src) {
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

inline Submitted copy(Stream& on, uint64_t dst, uint64_t src, uint64_t size, bool direct = false) {
    Operand to("dst", dst, size), from("src", src, size);
    return move(on, {.kind = OpKind::copy, .direct = direct, .size = size}, to, &from);
}

inline Submitted reduce(Stream& on, uint64_t dst, uint64_t src, uint64_t count, const Reduction& reduction,
                        bool direct = false) {
    const uint64_t size = reduced_size(dst, src, count, reduction);
    Operand to("dst", dst, size), from("src", src, size);
    return move(on, {.kind = OpKind::reduce, .direct = direct, .size = size, .reduction = &reduction}, to, &from);
}

inline Submitted fill(Stream& on, uint64_t dst, uint8_t byte, uint64_t size) {
    Operand to("dst", dst, size);
    return move(on, {.kind = OpKind::fill, .size = size, .value = byte}, to, nullptr);
}

inline Submitted write(Stream& on, uint64_t dst, uint64_t value) {
    Operand to("dst", dst, 8);
    return move(on, {.kind = OpKind::write_value, .width = 8, .size = 8, .value = value}, to, nullptr);
}

inline Submitted wait_value(Stream& on, uint64_t at, uint64_t value, uint64_t timeout_ns = 0) {
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

inline Submitted copy_2d(Stream& on, uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width,
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

struct Part {
    uint64_t dst, src, size;
};

inline Submitted batch(Stream& on, const std::vector<Part>& parts) {
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

inline Submitted launch(Stream& on, const Area& table, uint64_t size, uint32_t only_device = 0, bool direct = false) {
    auto launch = std::make_unique<Launch>();
    launch->table_size = size;
    launch->only_device = only_device;
    Operand operand("address", table.address, size);
    const Submitted done =
        move(on, {.kind = OpKind::descriptor, .direct = direct, .size = size, .extra = launch.get()}, operand, nullptr);
    launch.release();
    return done;
}

inline Submitted free_in_order(Stream& on, const Area& what) {
    return engine().submit(on, {.kind = OpKind::free, .dst_extent = what.extent, .value = what.id});
}

template <class Shared, class Make>
Submitted submit_holding(Stream& on, Shared* shared, const Make& make) {
    shared->hold();
    try {
        return engine().submit(on, make());
    } catch (...) {
        shared->drop();
        throw;
    }
}

inline Submitted notify(Stream& on, Notify* what) {
    return submit_holding(on, what, [&] { return Op{.kind = OpKind::notify, .notify = what}; });
}

inline Submitted await(Stream& on, Notify* what, uint64_t timeout_ns = 0) {
    return submit_holding(on, what, [&] {
        return Op{.kind = OpKind::wait_notify, .notify = what, .timeout_ns = timeout_ns};
    });
}

inline Submitted callback(Stream& on, CallbackQueue* queue, uint64_t token) {
    return submit_holding(on, queue, [&] { return Op{.kind = OpKind::callback, .callbacks = queue, .value = token}; });
}

// One record of an event, held.
struct Record {
    Mark* const mark;
    explicit Record(Stream& on) : mark(engine().record(on)) {}
    ~Record() { mark->drop(); }
    Record(const Record&) = delete;

    Outcome sync(double seconds = kPatience) const { return engine().synchronize(*mark, Deadline::in(seconds), {}); }
};

// `after` waits for what `before` was given so far.
inline void order(Stream& before, Stream& after) {
    const Record record(before);
    engine().wait(after, *record.mark, 0);
}

inline void sync(Stream& on) {
    CHECK(engine().synchronize(on, Deadline::in(kPatience), {}) == Outcome::reached);
}

// Everything over, and nothing went wrong.
inline void finish(Stream& on) {
    sync(on);
    const FailurePtr failure = engine().take_failure(on);
    if (failure) std::fprintf(stderr, "stream %llu: operation %llu failed: %d\n", static_cast<unsigned long long>(failure->stream),
                              static_cast<unsigned long long>(failure->sequence), static_cast<int>(failure->refusal.why));
    CHECK(!failure);
}

inline void close(Stream& on) { CHECK(engine().close(on, true, {}) == Outcome::reached); }

inline bool failed_with(Stream& on, Why why) {
    const FailurePtr failure = engine().take_failure(on);
    return failure && failure->refusal.why == why;
}

// Seconds that `work` takes.
template <class Work>
double seconds(const Work& work) {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class Test>
void under_each_schedule(std::mt19937_64& random, const Test& test) {
    for (const Schedule schedule : {Schedule::eager, Schedule::lazy, Schedule::seeded}) {
        engine().configure(schedule, random());
        test();
    }
    engine().configure(Schedule::eager, 0);
}

}  // namespace streams
