// Shared by the tests of streams: memory, operations in one line, waits that end, all schedules.
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

inline constexpr double kPatience = 60;   // seconds; a longer wait is a hang

uint32_t new_device(bool routes_to_all = true);
void open_heap();

struct Area {
    Extent* extent = nullptr;
    uint64_t id = 0, address = 0, size = 0;
    char* host = nullptr;

    uint64_t word(uint64_t i) const {
        uint64_t value;
        memcpy(&value, host + i * sizeof value, sizeof value);
        return value;
    }
    // Can be read while a stream writes it.
    uint64_t peek(uint64_t i) const {
        return std::atomic_ref(reinterpret_cast<uint64_t*>(host)[i]).load(std::memory_order_relaxed);
    }
    void set(uint64_t i, uint64_t value) const { memcpy(host + i * sizeof value, &value, sizeof value); }
    void close() const { Heap::get().retire(extent, id); }
};

Area area(uint32_t device, uint64_t size);

inline Scheduler& engine() { return Scheduler::get(); }

StreamPtr stream(uint32_t device, bool stops = true, std::shared_ptr<Group> group = nullptr, bool legacy = false);
Submitted move(Stream& on, Op op, Operand& dst, Operand* src);
Submitted copy(Stream& on, uint64_t dst, uint64_t src, uint64_t size, bool direct = false);
Submitted reduce(Stream& on, uint64_t dst, uint64_t src, uint64_t count, const Reduction& reduction,
                 bool direct = false);
Submitted fill(Stream& on, uint64_t dst, uint8_t byte, uint64_t size);
Submitted write(Stream& on, uint64_t dst, uint64_t value);
Submitted wait_value(Stream& on, uint64_t at, uint64_t value, uint64_t timeout_ns = 0);
Submitted copy_2d(Stream& on, uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width,
                  uint64_t height);

struct Part {
    uint64_t dst, src, size;
};

Submitted batch(Stream& on, const std::vector<Part>& parts);
Submitted launch(Stream& on, const Area& table, uint64_t size, uint32_t only_device = 0, bool direct = false);
Submitted free_in_order(Stream& on, const Area& what);

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

Submitted notify(Stream& on, Notify* what);
Submitted await(Stream& on, Notify* what, uint64_t timeout_ns = 0);
Submitted callback(Stream& on, CallbackQueue* queue, uint64_t token);

// One record of an event, held.
struct Record {
    Mark* const mark;
    explicit Record(Stream& on) : mark(engine().record(on)) {}
    ~Record() { mark->drop(); }
    Record(const Record&) = delete;

    Outcome sync(double seconds = kPatience) const { return engine().synchronize(*mark, Deadline::in(seconds), {}); }
};

// `after` waits for the operations submitted to `before` so far.
void order(Stream& before, Stream& after);

void sync(Stream& on);

// Synchronizes, and checks that nothing failed.
void finish(Stream& on);
void close(Stream& on);
bool failed_with(Stream& on, Why why);

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
        engine().configure(schedule, {random()});
        test();
    }
    engine().configure(Schedule::eager, {});
}

}  // namespace streams
