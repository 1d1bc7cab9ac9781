// Copies and fills between any two addresses, complete on return.
#pragma once
#include <cstdint>

#include "copy/task.h"

namespace peerlane {

// The calling thread calls it about every 100 ms, never with a lock held; true: stop.
struct Poll {
    bool (*ask)(void*) = nullptr;
    void* context = nullptr;
};

// A range that is held for the length of an operation.
class Operand {
  public:
    // `is_mapped`: pageable bytes are the buffer of a live object.  Throws Refusal.
    Operand(const char* role, uint64_t address, uint64_t size, bool is_mapped = false);
    Operand(const char* role, uint64_t address, uint64_t size, Range range)     // takes the range's pins over
        : role(role), address(address), size(size), range_(range) {}
    ~Operand() { Heap::get().unpin(range_); }
    Operand(const Operand&) = delete;
    Operand& operator=(const Operand&) = delete;

    char* host() const { return range_.host; }
    bool is_pageable() const { return range_.extent == nullptr; }
    const Range& range() const { return range_; }
    Side side() const { return {role, address, size, range_.host, is_pageable(), range_.device}; }
    // Give the pins to another owner.
    void hand_over() { range_.extent = nullptr; }

    const char* const role;
    const uint64_t address, size;
    const bool is_mapped = false;

  private:
    Range range_;
};

// Below this size the work is shorter than releasing and taking the GIL.
constexpr uint64_t kBrief = uint64_t{256} << 10;

// All throw Refusal.  If the refusal names an address, nothing was written.  After host_fault, device_fault and
// interrupted, the destination's bytes are unspecified.
// `direct`: refuse (no_route, not_peer_memory) instead of staging through the host.
void copy(const Operand& dst, const Operand& src, uint64_t size, bool direct = false, Poll poll = {});
void copy_2d(const Operand& dst, uint64_t dst_pitch, const Operand& src, uint64_t src_pitch, uint64_t width,
             uint64_t height, bool direct = false, Poll poll = {});
void fill(const Operand& dst, uint64_t value, unsigned width, uint64_t count, Poll poll = {});
// The operands have passed check_reduced().
void reduce(const Operand& dst, const Operand& src, const Reduction& reduction, bool direct = false, Poll poll = {});

void copy(uint64_t dst, uint64_t src, uint64_t size, bool direct = false, Poll poll = {});
void copy_2d(uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width, uint64_t height,
             bool direct = false, Poll poll = {});
void fill(uint64_t dst, uint64_t value, unsigned width, uint64_t count, Poll poll = {});
void reduce(uint64_t dst, uint64_t src, uint64_t count, const Reduction& reduction, bool direct = false, Poll poll = {});

// The checks of a reduction, before and after its operands are resolved.
uint64_t reduced_size(uint64_t dst, uint64_t src, uint64_t count, const Reduction& reduction);
void check_reduced(const Operand& dst, const Operand& src, const Reduction& reduction);

// Run a task to its end on this thread, and on all cores if that is faster.
void run_task(const Task& task, const Side* sides, unsigned count, Poll poll);

}  // namespace peerlane
