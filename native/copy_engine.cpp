#include "copy_engine.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>

#include "fault_guard.h"
#include "kernels.h"
#include "thread_team.h"

namespace peerlane {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPollPeriod = std::chrono::milliseconds(100);

using Operands = std::initializer_list<const Operand*>;

// User space of x86-64 and aarch64: beyond it a touch faults without telling where.
bool is_canonical(uint64_t address) { return address >> 47 == 0; }

[[noreturn]] void refuse_fault(const FaultGuard& guard, Operands operands) {
    const Operand* culprit = nullptr;
    for (const Operand* operand : operands)
        if (guard.address - reinterpret_cast<uintptr_t>(operand->host()) < operand->size) culprit = operand;
    for (const Operand* operand : operands)
        if (!culprit && operand->is_pageable() && !is_canonical(operand->address + operand->size - 1)) culprit = operand;
    if (!culprit) culprit = *operands.begin();
    const bool pageable = culprit->is_pageable();
    throw Refusal{.why = pageable ? Why::host_fault : Why::device_fault, .role = culprit->role,
                  .address = culprit->address, .size = culprit->size,
                  .fault_address = pageable ? guard.address : 0, .device = culprit->range().device};
}

// The clock of one operation, which may consist of many runs.
class Watch {
  public:
    explicit Watch(Poll poll) : poll_(poll), next_(Clock::now() + kPollPeriod) {}

    // True: stop.  Called by the thread that asked, with its fault guard set aside: the poll runs the interpreter.
    bool says_stop() {
        if (!poll_.ask || Clock::now() < next_) return false;
        FaultGuard* mine = active_guard;
        active_guard = nullptr;
        const bool stop = poll_.ask(poll_.context);
        active_guard = mine;
        next_ = Clock::now() + kPollPeriod;
        return stop;
    }

  private:
    const Poll poll_;
    Clock::time_point next_;
};

// Run `step(i)` for i in [0, steps) under the guard, on the team when that pays.
class Run {
  public:
    Run(uint64_t steps, Watch& watch, Operands operands) : steps_(steps), watch_(watch), operands_(operands) {}

    template <class Step>
    void go(bool on_team, bool fence, const Step& step) {
        const auto work = [&](bool is_caller) {
            FaultGuard guard;
            if (!guarded(guard, [&] { loop(step, is_caller); })) record(guard);
            if (fence) store_fence();
        };
        if (on_team)
            ThreadTeam::get().run(ThreadTeam::cores() - 1, work);
        else
            work(true);
        if (faulted_.load(std::memory_order_acquire)) refuse_fault(fault_, operands_);
        if (interrupted_) throw Refusal{.why = Why::interrupted};
    }

  private:
    template <class Step>
    void loop(const Step& step, bool is_caller) {
        while (true) {
            const uint64_t i = cursor_.fetch_add(1, std::memory_order_relaxed);
            if (i >= steps_) return;
            step(i);
            if (is_caller && watch_.says_stop()) {
                interrupted_ = true;
                cursor_.store(steps_, std::memory_order_relaxed);
                return;
            }
        }
    }

    void record(const FaultGuard& guard) {
        cursor_.store(steps_, std::memory_order_relaxed);
        bool expected = false;
        if (!claimed_.compare_exchange_strong(expected, true)) return;
        fault_.address = guard.address;
        faulted_.store(true, std::memory_order_release);
    }

    std::atomic<uint64_t> cursor_{0};
    const uint64_t steps_;
    Watch& watch_;
    const Operands operands_;
    std::atomic<bool> claimed_{false}, faulted_{false};
    FaultGuard fault_;
    bool interrupted_ = false;
};

bool overlaps(const char* a, const char* b, uint64_t size) {
    return static_cast<uint64_t>(a - b) < size || static_cast<uint64_t>(b - a) < size;
}

uint64_t chunks(uint64_t size) { return (size + kChunk - 1) / kChunk; }
uint64_t chunk_size(uint64_t i, uint64_t size) { return std::min(kChunk, size - i * kChunk); }

void copy_staged(char* dst, const char* src, uint64_t size, char* middle, Watch& watch, Operands operands) {
    const bool backwards = overlaps(dst, src, size) && dst > src;
    const uint64_t last = chunks(size) - 1;
    Run(last + 1, watch, operands).go(false, false, [=](uint64_t i) {
        const uint64_t at = backwards ? last - i : i;
        memcpy(middle, src + at * kChunk, chunk_size(at, size));
        memcpy(dst + at * kChunk, middle, chunk_size(at, size));
    });
}

void copy_bytes(char* dst, const char* src, uint64_t size, Watch& watch, Operands operands) {
    const uint64_t last = chunks(size) - 1;
    Run run(last + 1, watch, operands);
    if (overlaps(dst, src, size)) {
        const bool backwards = dst > src;
        run.go(false, false, [=](uint64_t i) {
            const uint64_t at = backwards ? last - i : i;
            memmove(dst + at * kChunk, src + at * kChunk, chunk_size(at, size));
        });
    } else if (size >= kStreamFrom && has_stream_copy()) {
        run.go(true, true, [=](uint64_t i) {
            stream_copy(dst + i * kChunk, src + i * kChunk, chunk_size(i, size));
        });
    } else {
        run.go(size >= kTeamFrom, false, [=](uint64_t i) {
            memcpy(dst + i * kChunk, src + i * kChunk, chunk_size(i, size));
        });
    }
}

// True when the bytes must go through the host; refuses when that is not wanted.
bool needs_staging(const Operand& to, const Operand& from, bool direct) {
    const uint32_t a = to.range().device, b = from.range().device;
    if (a == b || a == kHost || b == kHost) return false;
    Why why;
    if (Heap::get().may_go_direct(*to.range().extent, *from.range().extent, why)) return false;
    if (direct) throw Refusal{.why = why, .role = "dst", .device = a, .other_device = b};
    return true;
}

// Somebody may have stepped in front of the handlers since (faulthandler does): ask where it matters.
void prepare_guard(uint64_t size, Operands operands) {
    bool wanted = size >= kTeamFrom;
    for (const Operand* operand : operands) wanted |= operand->is_pageable();
    if (wanted) rearm_fault_handlers();
}

}  // namespace

Operand::Operand(const char* role, uint64_t address, uint64_t size)
    : role(role), address(address), size(size), range_(Heap::get().resolve(role, address, size)) {}
Operand::Operand(const char* role, uint64_t address, uint64_t size, Range range)
    : role(role), address(address), size(size), range_(range) {}
Operand::~Operand() { Heap::get().unpin(range_); }

void copy(const Operand& dst, const Operand& src, uint64_t size, bool direct, Poll poll) {
    if (size == 0) return;
    const auto operands = {&dst, &src};
    prepare_guard(size, operands);
    if (size <= kBrief && !needs_staging(dst, src, direct)) {
        FaultGuard guard;
        char* const to = dst.host();
        const char* const from = src.host();
        if (!guarded(guard, [=] { memmove(to, from, size); })) refuse_fault(guard, operands);
        return;
    }
    Watch watch(poll);
    if (needs_staging(dst, src, direct)) {
        const std::unique_ptr<char[]> middle(new char[std::min(size, kChunk)]);
        copy_staged(dst.host(), src.host(), size, middle.get(), watch, operands);
    } else {
        copy_bytes(dst.host(), src.host(), size, watch, operands);
    }
}

void copy(uint64_t dst, uint64_t src, uint64_t size, bool direct, Poll poll) {
    Heap::get().check_usable();
    if (size == 0) return;
    copy({"dst", dst, size}, {"src", src, size}, size, direct, poll);
}

uint64_t pitched_span(const char* role, uint64_t pitch, uint64_t width, uint64_t height) {
    uint64_t span;
    if (__builtin_mul_overflow(pitch, height - 1, &span) || __builtin_add_overflow(span, width, &span))
        throw Refusal{.why = Why::pitch_overflow, .role = role, .address = pitch, .size = height};
    return span;
}

void copy_2d(const Operand& dst, uint64_t dst_pitch, const Operand& src, uint64_t src_pitch, uint64_t width,
             uint64_t height, bool direct, Poll poll) {
    if (width == 0 || height == 0) return;
    const bool staged = needs_staging(dst, src, direct);
    if (width == dst_pitch && width == src_pitch) {
        copy(dst, src, width * height, direct, poll);
        return;
    }
    const auto operands = {&dst, &src};
    const uint64_t span = std::max(dst.size, src.size);
    prepare_guard(span, operands);
    char* const out = dst.host();
    const char* const in = src.host();
    const bool disjoint = !overlaps(out, in, span);
    const bool backwards = !disjoint && out > in;
    const auto row_at = [=](uint64_t n) { return backwards ? height - 1 - n : n; };
    const std::unique_ptr<char[]> bounce(staged ? new char[std::min(width, kChunk)] : nullptr);
    char* const middle = bounce.get();
    Watch watch(poll);
    if (width >= kChunk) {
        for (uint64_t n = 0; n < height; ++n) {
            char* const to = out + row_at(n) * dst_pitch;
            const char* const from = in + row_at(n) * src_pitch;
            staged ? copy_staged(to, from, width, middle, watch, operands) : copy_bytes(to, from, width, watch, operands);
        }
        return;
    }
    // A row costs at least the misses of its two ends, however narrow it is.
    const uint64_t rows = kChunk / std::max<uint64_t>(width, 256);
    const uint64_t steps = (height + rows - 1) / rows;
    Run(steps, watch, operands).go(disjoint && !staged && span >= kTeamFrom, false, [=](uint64_t i) {
        for (uint64_t n = i * rows; n < std::min((i + 1) * rows, height); ++n) {
            char* const to = out + row_at(n) * dst_pitch;
            const char* from = in + row_at(n) * src_pitch;
            if (middle) {
                memcpy(middle, from, width);
                from = middle;
            }
            memmove(to, from, width);
        }
    });
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
    const uint64_t size = count * width;
    if (size == 0) return;
    prepare_guard(size, {&dst});
    uint32_t pattern = static_cast<uint32_t>(value);
    if (width == 1) pattern = (pattern & 0xFF) * 0x01010101u;
    if (width == 2) pattern = (pattern & 0xFFFF) * 0x00010001u;
    char* const out = dst.host();
    Watch watch(poll);
    Run(chunks(size), watch, {&dst}).go(size >= kTeamFrom, false, [=](uint64_t i) {
        fill_pattern(out + i * kChunk, pattern, chunk_size(i, size));
    });
}

void fill(uint64_t dst, uint64_t value, unsigned width, uint64_t count, Poll poll) {
    Heap::get().check_usable();
    uint64_t size;
    if (__builtin_mul_overflow(count, uint64_t{width}, &size))
        throw Refusal{.why = Why::overflow, .role = "dst", .address = dst, .size = count};
    if (size == 0) return;
    fill({"dst", dst, size}, value, width, count, poll);
}

}  // namespace peerlane
