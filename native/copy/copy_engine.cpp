#include "copy/copy_engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "copy/kernels.h"
#include "copy/thread_team.h"
#include "memory/fault_guard.h"

namespace peerlane {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kCopyPollPeriod = std::chrono::milliseconds(100);

// The clock of one operation.
class Watch {
  public:
    explicit Watch(Poll poll) : poll_(poll), next_(Clock::now() + kCopyPollPeriod) {}

    // True: stop.  Called by the thread that asked, with its fault guard set aside: the poll runs the interpreter.
    bool must_stop() {
        if (!poll_.ask || Clock::now() < next_) return false;
        FaultGuard* mine = active_guard;
        active_guard = nullptr;
        const bool stop = poll_.ask(poll_.context);
        active_guard = mine;
        next_ = Clock::now() + kCopyPollPeriod;
        return stop;
    }

  private:
    const Poll poll_;
    Clock::time_point next_;
};

class Run {
  public:
    Run(const Task& task, Poll poll) : task_(task), watch_(poll) {}

    void go(const Side* sides, unsigned count) {
        const auto work = [&](bool is_caller) {
            FaultGuard guard;
            if (!guarded(guard, [&] { loop(is_caller); })) record(guard);
            if (task_.streams) store_fence();
        };
        if (task_.parallel && !task_.staged)
            ThreadTeam::get().run(ThreadTeam::cores() - 1, work);
        else
            work(true);
        if (faulted_.load(std::memory_order_acquire)) throw explain_fault(fault_, task_, sides, count);
        if (interrupted_) throw Refusal{.why = Why::interrupted};
    }

  private:
    void loop(bool is_caller) {
        while (true) {
            const uint64_t i = cursor_.fetch_add(1, std::memory_order_relaxed);
            if (i >= task_.steps) return;
            task_.step(i);
            if (is_caller && watch_.must_stop()) {
                interrupted_ = true;
                cursor_.store(task_.steps, std::memory_order_relaxed);
                return;
            }
        }
    }

    void record(const FaultGuard& guard) {
        cursor_.store(task_.steps, std::memory_order_relaxed);
        bool expected = false;
        if (!claimed_.compare_exchange_strong(expected, true)) return;
        fault_ = guard;
        faulted_.store(true, std::memory_order_release);
    }

    const Task& task_;
    Watch watch_;
    std::atomic<uint64_t> cursor_{0};
    std::atomic<bool> claimed_{false}, faulted_{false};
    Fault fault_;
    bool interrupted_ = false;
};

// Somebody may have stepped in front of the handlers since (faulthandler does): ask where it matters.
void prepare_guard(const Task& task, const Side* sides, unsigned count) {
    bool wanted = task.size * task.height >= kTeamFrom;
    for (const Side* side = sides; side != sides + count; ++side) wanted |= side->pageable;
    if (wanted) rearm_fault_handlers();
}

}  // namespace

Operand::Operand(const char* role, uint64_t address, uint64_t size, bool is_mapped)
    : role(role), address(address), size(size), is_mapped(is_mapped), range_(Heap::get().resolve(role, address, size)) {
    if (address == 0 && size != 0) [[unlikely]]   // it would fault, on a stream long after the call
        throw Refusal{.why = Why::host_fault, .role = role, .size = size};
}

void run_task(const Task& task, const Side* sides, unsigned count, Poll poll) {
    if (task.kind == Task::Kind::none) return;
    if (task.staged) prepare_staging();
    prepare_guard(task, sides, count);
    check_ends(sides, count);
    Run(task, poll).go(sides, count);
}

void copy(const Operand& dst, const Operand& src, uint64_t size, bool direct, Poll poll) {
    if (size == 0) return;
    Heap::get().check_access(dst.range(), src.range(), kHost);
    const bool staged = needs_staging(dst.range(), src.range(), direct);
    if (size <= kBrief && !staged) {
        if (dst.is_pageable() || src.is_pageable())
            rearm_fault_handlers((!dst.is_pageable() || dst.is_mapped) && (!src.is_pageable() || src.is_mapped));
        FaultGuard guard;
        char* const to = dst.host();
        const char* const from = src.host();
        if (guarded(guard, [=] { memmove(to, from, size); })) return;
        const Side sides[] = {dst.side(), src.side()};
        throw explain_fault(guard, sides, 2);
    }
    const Side sides[] = {dst.side(), src.side()};
    run_task(plan_copy(dst.host(), src.host(), size, staged), sides, 2, poll);
}

void copy(uint64_t dst, uint64_t src, uint64_t size, bool direct, Poll poll) {
    Heap::get().check_usable();
    if (size == 0) return;
    copy({"dst", dst, size}, {"src", src, size}, size, direct, poll);
}

void copy_2d(const Operand& dst, uint64_t dst_pitch, const Operand& src, uint64_t src_pitch, uint64_t width,
             uint64_t height, bool direct, Poll poll) {
    if (width == 0 || height == 0) return;
    Heap::get().check_access(dst.range(), src.range(), kHost);
    const bool staged = needs_staging(dst.range(), src.range(), direct);
    const Side sides[] = {dst.side(), src.side()};
    run_task(plan_copy_2d(dst.host(), dst_pitch, src.host(), src_pitch, width, height, staged), sides, 2, poll);
}

void copy_2d(uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width, uint64_t height,
             bool direct, Poll poll) {
    Heap::get().check_usable();
    if (width == 0 || height == 0) return;
    const uint64_t dst_span = pitched_span("dst", dst_pitch, width, height);
    const uint64_t src_span = pitched_span("src", src_pitch, width, height);
    copy_2d({"dst", dst, dst_span}, dst_pitch, {"src", src, src_span}, src_pitch, width, height, direct, poll);
}

void fill(const Operand& dst, uint64_t value, unsigned width, uint64_t count, Poll poll) {
    Heap::get().check_access(dst.range(), {}, kHost);
    const Side side = dst.side();
    run_task(plan_fill(dst.host(), value, width, count * width), &side, 1, poll);
}

void fill(uint64_t dst, uint64_t value, unsigned width, uint64_t count, Poll poll) {
    Heap::get().check_usable();
    uint64_t size;
    if (__builtin_mul_overflow(count, uint64_t{width}, &size))
        throw Refusal{.why = Why::overflow, .role = "dst", .address = dst, .size = count};
    if (size == 0) return;
    fill({"dst", dst, size}, value, width, count, poll);
}

uint64_t reduced_size(uint64_t dst, uint64_t src, uint64_t count, const Reduction& reduction) {
    for (const auto& [role, address] : {std::pair{"dst", dst}, std::pair{"src", src}})
        if (address % reduction.width != 0)
            throw Refusal{.why = Why::misaligned, .role = role, .address = address, .width = reduction.width};
    uint64_t size;
    if (__builtin_mul_overflow(count, uint64_t{reduction.width}, &size))
        throw Refusal{.why = Why::overflow, .role = "dst", .address = dst, .size = count};
    return size;
}

namespace {

struct Part {
    Spot spot;
    uint64_t size, at;   // of the operand

    void check(const Part& from, const Operand& dst, const Operand& src) const {
        if (spot.block != from.spot.block || spot.offset - at == from.spot.offset - from.at) return;
        if (spot.offset - from.spot.offset < from.size || from.spot.offset - spot.offset < size)
            throw Refusal{.why = Why::partly_overlapping, .address = dst.address, .size = dst.size, .source = src.address};
    }
};

Part part_at(const Operand& operand, uint64_t at) {
    const Spot spot = Heap::get().spot_of(operand.host() + at);
    return {spot, std::min(spot.left, operand.size - at), at};
}

template <class Visit>
void each_part(const Operand& operand, const Visit& visit) {
    for (uint64_t at = 0; at < operand.size;) {
        const Part part = part_at(operand, at);
        if (part.size == 0) return;
        visit(part);
        at += part.size;
    }
}

// The same bytes may be mapped twice, and each operand lie in thousands of blocks.
void refuse_partial_overlap(const Operand& dst, const Operand& src) {
    if (dst.size == 0) return;
    const Part to = part_at(dst, 0), from = part_at(src, 0);
    if (to.size == dst.size && from.size == src.size) return to.check(from, dst, src);
    std::vector<Part> parts;
    each_part(src, [&](const Part& part) { parts.push_back(part); });
    const auto is_before = [](const Part& a, const Part& b) { return a.spot.block < b.spot.block; };
    std::sort(parts.begin(), parts.end(), is_before);
    each_part(dst, [&](const Part& part) {
        const auto [first, last] = std::equal_range(parts.begin(), parts.end(), part, is_before);
        for (auto at = first; at != last; ++at) part.check(*at, dst, src);
    });
}

}  // namespace

void check_reduced(const Operand& dst, const Operand& src, const Reduction& reduction) {
    if (dst.size != src.size)
        throw Refusal{.why = Why::size_mismatch, .role = "reduce", .size = src.size, .other_size = dst.size};
    if (dst.size % reduction.width != 0)
        throw Refusal{.why = Why::no_whole_elements, .size = dst.size, .width = reduction.width};
    reduced_size(dst.address, src.address, 0, reduction);
    refuse_partial_overlap(dst, src);
}

void reduce(const Operand& dst, const Operand& src, const Reduction& reduction, bool direct, Poll poll) {
    if (dst.size == 0) return;
    Heap::get().check_access(dst.range(), src.range(), kHost);
    const Side sides[] = {dst.side(), src.side()};
    const bool staged = needs_staging(dst.range(), src.range(), direct);
    const Task task = plan_reduce(dst.host(), src.host(), dst.size, reduction, staged);
    if (dst.size > kBrief) return run_task(task, sides, 2, poll);
    if (staged) prepare_staging();
    if (dst.is_pageable() || src.is_pageable()) rearm_fault_handlers();
    FaultGuard guard;
    if (!guarded(guard, [&] { task.run(); })) throw explain_fault(guard, sides, 2);
}

void reduce(uint64_t dst, uint64_t src, uint64_t count, const Reduction& reduction, bool direct, Poll poll) {
    Heap::get().check_usable();
    const uint64_t size = reduced_size(dst, src, count, reduction);
    if (size == 0) return;
    const Operand to("dst", dst, size), from("src", src, size);
    check_reduced(to, from, reduction);
    reduce(to, from, reduction, direct, poll);
}

}  // namespace peerlane
