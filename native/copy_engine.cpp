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
constexpr uint64_t kBounce = uint64_t{1} << 20;

struct Pinned {   // what a resolved operand holds, given back on every way out
    Heap& heap;
    Range range;
    Pinned(const char* role, uint64_t address, uint64_t size)
        : heap(Heap::get()), range(heap.resolve(role, address, size)) {}
    ~Pinned() { heap.unpin(range); }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    char* host() const { return range.host; }
};

struct Operand {
    const char* role;
    uint64_t address, size;
    const char* host;
    bool device;
};

[[noreturn]] void refuse_fault(const FaultGuard& guard, std::initializer_list<Operand> operands) {
    const Operand* culprit = operands.begin();
    for (const Operand& operand : operands)
        if (guard.address - reinterpret_cast<uintptr_t>(operand.host) < operand.size) culprit = &operand;
    // A non-canonical pointer faults without an address: then it is the one that is not device memory.
    if (guard.address == 0)
        for (const Operand& operand : operands)
            if (!operand.device) culprit = &operand;
    throw Refusal{.why = culprit->device ? Why::device_fault : Why::host_fault, .role = culprit->role,
                  .address = culprit->address, .size = culprit->size,
                  .fault_address = culprit->device ? 0 : guard.address};
}

// Run `step(i)` for i in [0, steps) under the guard, on the team when that pays.
class Run {
  public:
    Run(uint64_t steps, Poll poll, std::initializer_list<Operand> operands)
        : steps_(steps), poll_(poll), operands_(operands) {}

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
        auto next_poll = Clock::now() + kPollPeriod;
        while (true) {
            const uint64_t i = cursor_.fetch_add(1, std::memory_order_relaxed);
            if (i >= steps_) return;
            step(i);
            if (!is_caller || !poll_.ask || Clock::now() < next_poll) continue;
            FaultGuard* mine = active_guard;
            active_guard = nullptr;   // the poll runs the interpreter: its faults are not ours
            interrupted_ = poll_.ask(poll_.context);
            active_guard = mine;
            if (interrupted_) {
                cursor_.store(steps_, std::memory_order_relaxed);
                return;
            }
            next_poll = Clock::now() + kPollPeriod;
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
    const Poll poll_;
    const std::initializer_list<Operand> operands_;
    std::atomic<bool> claimed_{false}, faulted_{false};
    FaultGuard fault_;
    bool interrupted_ = false;
};

Operand operand(const char* role, uint64_t address, uint64_t size, const Pinned& pinned) {
    return {role, address, size, pinned.host(), pinned.range.extent != nullptr};
}

bool overlaps(const char* a, const char* b, uint64_t size) {
    return static_cast<uint64_t>(a - b) < size || static_cast<uint64_t>(b - a) < size;
}

uint64_t chunks(uint64_t size) { return (size + kChunk - 1) / kChunk; }
uint64_t chunk_size(uint64_t i, uint64_t size) { return std::min(kChunk, size - i * kChunk); }

void copy_staged(char* dst, const char* src, uint64_t size, Poll poll, std::initializer_list<Operand> operands) {
    const std::unique_ptr<char[]> bounce(new char[std::min(size, kBounce)]);
    char* middle = bounce.get();
    const bool backwards = overlaps(dst, src, size) && dst > src;
    const uint64_t last = chunks(size) - 1;
    Run(last + 1, poll, operands).go(false, false, [=](uint64_t i) {
        const uint64_t at = backwards ? last - i : i;
        memcpy(middle, src + at * kChunk, chunk_size(at, size));
        memcpy(dst + at * kChunk, middle, chunk_size(at, size));
    });
}

void copy_bytes(char* dst, const char* src, uint64_t size, Poll poll, std::initializer_list<Operand> operands) {
    if (size <= kBrief) {
        FaultGuard guard;
        if (!guarded(guard, [=] { memmove(dst, src, size); })) refuse_fault(guard, operands);
        return;
    }
    if (size >= kTeamFrom) rearm_fault_handlers();
    const uint64_t last = chunks(size) - 1;
    Run run(last + 1, poll, operands);
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

void move_bytes(bool staged, char* dst, const char* src, uint64_t size, Poll poll,
                std::initializer_list<Operand> operands) {
    staged ? copy_staged(dst, src, size, poll, operands) : copy_bytes(dst, src, size, poll, operands);
}

// True when the bytes must go through the host; refuses when that is not wanted.
bool needs_staging(const Pinned& to, const Pinned& from, bool direct) {
    const uint32_t a = to.range.device, b = from.range.device;
    if (a == b || a == kHost || b == kHost) return false;
    Why why;
    if (to.heap.may_go_direct(*to.range.extent, *from.range.extent, why)) return false;
    if (direct) throw Refusal{.why = why, .role = "dst", .device = a, .other_device = b};
    return true;
}

}  // namespace

void copy(uint64_t dst, uint64_t src, uint64_t size, bool direct, Poll poll) {
    Heap::get().check_usable();
    if (size == 0) return;
    const Pinned to("dst", dst, size), from("src", src, size);
    const auto operands = {operand("dst", dst, size, to), operand("src", src, size, from)};
    move_bytes(needs_staging(to, from, direct), to.host(), from.host(), size, poll, operands);
}

uint64_t pitched_span(const char* role, uint64_t pitch, uint64_t width, uint64_t height) {
    uint64_t span;
    if (__builtin_mul_overflow(pitch, height - 1, &span) || __builtin_add_overflow(span, width, &span))
        throw Refusal{.why = Why::overflow, .role = role, .address = pitch, .size = height};
    return span;
}

void copy_2d(uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width, uint64_t height,
             bool direct, Poll poll) {
    Heap::get().check_usable();
    if (width == 0 || height == 0) return;
    const uint64_t dst_span = pitched_span("dst", dst_pitch, width, height);
    const uint64_t src_span = pitched_span("src", src_pitch, width, height);
    const Pinned to("dst", dst, dst_span), from("src", src, src_span);
    const auto operands = {operand("dst", dst, dst_span, to), operand("src", src, src_span, from)};
    char* const out = to.host();
    const char* const in = from.host();
    const bool staged = needs_staging(to, from, direct);
    if (width == dst_pitch && width == src_pitch) {
        move_bytes(staged, out, in, dst_span, poll, operands);
        return;
    }
    const bool disjoint = !overlaps(out, in, std::max(dst_span, src_span));
    const bool backwards = !disjoint && out > in;
    const auto row_at = [=](uint64_t n) { return backwards ? height - 1 - n : n; };
    if (width >= kChunk || staged) {
        for (uint64_t n = 0; n < height; ++n)
            move_bytes(staged, out + row_at(n) * dst_pitch, in + row_at(n) * src_pitch, width, poll, operands);
        return;
    }
    const uint64_t rows = kChunk / width;   // a step
    const uint64_t steps = (height + rows - 1) / rows;
    Run(steps, poll, operands).go(disjoint && dst_span >= kTeamFrom, false, [=](uint64_t i) {
        for (uint64_t n = i * rows; n < std::min((i + 1) * rows, height); ++n)
            memmove(out + row_at(n) * dst_pitch, in + row_at(n) * src_pitch, width);
    });
}

void fill(uint64_t dst, uint64_t value, unsigned width, uint64_t count, Poll poll) {
    Heap::get().check_usable();
    uint64_t size;
    if (__builtin_mul_overflow(count, uint64_t{width}, &size))
        throw Refusal{.why = Why::overflow, .role = "dst", .address = dst, .size = count};
    if (size == 0) return;
    const Pinned to("dst", dst, size);
    uint32_t pattern = static_cast<uint32_t>(value);
    if (width == 1) pattern = (pattern & 0xFF) * 0x01010101u;
    if (width == 2) pattern = (pattern & 0xFFFF) * 0x00010001u;
    char* const out = to.host();
    Run(chunks(size), poll, {operand("dst", dst, size, to)}).go(size >= kTeamFrom, false, [=](uint64_t i) {
        fill_pattern(out + i * kChunk, pattern, chunk_size(i, size));
    });
}

}  // namespace peerlane
