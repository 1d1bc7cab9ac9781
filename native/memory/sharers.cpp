#include "memory/sharers.h"

#include <array>
#include <atomic>

namespace peerlane {

namespace {

// Without a lock, which another thread could hold while this one forks.  Who has shared with more processes than this
// is judged by the memory that is shared now.
std::array<std::atomic<uint64_t>, 4096> sharers;

}  // namespace

void note_sharer(uint64_t owner) {
    for (std::atomic<uint64_t>& each : sharers) {
        uint64_t before = 0;
        if (each.compare_exchange_strong(before, owner, std::memory_order_release, std::memory_order_relaxed) || before == owner) return;
    }
}

bool is_sharer(uint64_t owner) {
    for (const std::atomic<uint64_t>& each : sharers) {
        const uint64_t sharer = each.load(std::memory_order_acquire);
        if (sharer == owner) return true;
        if (sharer == 0) return false;
    }
    return false;
}

}  // namespace peerlane
