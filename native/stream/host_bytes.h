// Bytes of the host's memory, of which the checker compares a digest before and after.
#pragma once
#include <algorithm>
#include <cstdint>

#include "memory/heap.h"
#include "stream/stream.h"

namespace peerlane {

// Rows of bytes; a single one is a range.
struct HostRows {
    const char* host = nullptr;
    uint64_t pitch = 0, width = 0, height = 1;

    uint64_t size() const { return width * height; }
    uint64_t low() const { return reinterpret_cast<uint64_t>(host); }
    uint64_t extent() const { return pitch * (height - 1) + width; }
    uint64_t high() const { return low() + extent(); }
};

// The time that it may take to watch memory: some at first, and then a share of what passes.  What is spent is reckoned by sizes, as a clock
// counts the time of others too while there are more threads than processors.
class SpareTime {
  public:
    bool is_left() {
        const uint64_t now = now_ns();
        if (begun_ns_ == 0) begun_ns_ = now;
        return spent_ns_ <= kFreeNs + (now - begun_ns_) / kShare;
    }
    void spend(uint64_t ns) { spent_ns_ += ns; }

  private:
    static constexpr uint64_t kFreeNs = 20'000'000, kShare = 25;

    uint64_t begun_ns_ = 0, spent_ns_ = 0;
};

constexpr uint64_t ns_of_digest(uint64_t size) { return size <= 16384 ? size / 6 : 1500 + std::min<uint64_t>(size / 4096, 2048) * 50; }

// Of all that is small, and of samples of what is large.  False: it could not be read.
bool read_digest(const HostRows& rows, uint64_t& digest);

// Whether it is the host's; `extent`: of pinned memory.
bool is_of_host(const char* host, Extent*& extent);

}  // namespace peerlane
