// Copies and fills between any two addresses, synchronously.  No policy but speed.
#pragma once
#include <cstdint>

#include "heap.h"

namespace peerlane {

// Called about every 100 ms by the thread that asked, never while a lock is held; true: stop.
struct Poll {
    bool (*ask)(void*) = nullptr;
    void* context = nullptr;
};

// A range that is held for the length of an operation.
class Operand {
  public:
    Operand(const char* role, uint64_t address, uint64_t size);                 // throws Refusal
    Operand(const char* role, uint64_t address, uint64_t size, Range range);    // takes the range's pins over
    ~Operand();
    Operand(const Operand&) = delete;
    Operand& operator=(const Operand&) = delete;

    char* host() const { return range_.host; }
    bool is_pageable() const { return range_.extent == nullptr; }
    const Range& range() const { return range_; }

    const char* const role;
    const uint64_t address, size;

  private:
    Range range_;
};

constexpr uint64_t kChunk = uint64_t{1} << 20;       // granularity of deadlines and cancellation
constexpr uint64_t kStreamFrom = uint64_t{16} << 20;  // from here on the caches are bypassed
constexpr uint64_t kTeamFrom = uint64_t{2} << 20;     // from here on helpers pay for their wake-up

// Below this the work is shorter than giving the GIL away and taking it back.
constexpr uint64_t kBrief = uint64_t{256} << 10;

// All throw Refusal.  After a refusal that names an address nothing was written; after host_fault,
// device_fault and interrupted the destination's bytes are unspecified.
// `direct`: refuse (no_route, not_peer_memory) instead of staging through the host.
void copy(const Operand& dst, const Operand& src, uint64_t size, bool direct = false, Poll poll = {});
void copy_2d(const Operand& dst, uint64_t dst_pitch, const Operand& src, uint64_t src_pitch, uint64_t width,
             uint64_t height, bool direct = false, Poll poll = {});
void fill(const Operand& dst, uint64_t value, unsigned width, uint64_t count, Poll poll = {});

void copy(uint64_t dst, uint64_t src, uint64_t size, bool direct = false, Poll poll = {});
void copy_2d(uint64_t dst, uint64_t dst_pitch, uint64_t src, uint64_t src_pitch, uint64_t width, uint64_t height,
             bool direct = false, Poll poll = {});
void fill(uint64_t dst, uint64_t value, unsigned width, uint64_t count, Poll poll = {});

// The bytes from the first to the last of a pitched rectangle; throws Refusal when that wraps.
uint64_t pitched_span(const char* role, uint64_t pitch, uint64_t width, uint64_t height);

}  // namespace peerlane
