// What a process sleeps on until another one has something for it.
#pragma once
#include <atomic>
#include <cstdint>

namespace peerlane {

// A futex word on which one thread of a process sleeps; peers ring it.
struct Doorbell {
    std::atomic<uint32_t> rings{0};

    void ring();
    // Sleep until it was rung after `seen` was read, or for `nanoseconds`.
    void sleep(uint32_t seen, uint64_t nanoseconds);
};

}  // namespace peerlane
