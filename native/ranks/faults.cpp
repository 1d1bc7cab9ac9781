#include "ranks/faults.h"

#include <csignal>
#include <ctime>
#include <unistd.h>

#include <algorithm>

namespace peerlane {

namespace {

std::vector<PlannedFault>& planned() {
    static auto* all = new std::vector<PlannedFault>;   // threads may outlive static destruction
    return *all;
}
std::atomic<uint64_t> counted{0};

}  // namespace

void plan_faults(std::vector<PlannedFault> faults) {
    has_faults.store(false, std::memory_order_relaxed);
    std::stable_sort(faults.begin(), faults.end(), [](const PlannedFault& a, const PlannedFault& b) { return a.op < b.op; });
    planned() = std::move(faults);
    has_faults.store(!planned().empty(), std::memory_order_release);
}

void count_event() {
    const uint64_t number = counted.fetch_add(1, std::memory_order_relaxed) + 1;
    const auto& all = planned();
    auto at = std::lower_bound(all.begin(), all.end(), number, [](const PlannedFault& a, uint64_t n) { return a.op < n; });
    for (; at != all.end() && at->op == number; ++at) {
        if (at->kills) {
            kill(getpid(), SIGKILL);
            while (true) pause();
        }
        timespec left{static_cast<time_t>(at->nanoseconds / 1'000'000'000), static_cast<long>(at->nanoseconds % 1'000'000'000)};
        while (nanosleep(&left, &left) != 0) {
        }
    }
}

uint64_t counted_events() { return counted.load(std::memory_order_relaxed); }

}  // namespace peerlane
