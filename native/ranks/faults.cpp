#include "ranks/faults.h"

#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace peerlane {

namespace {

std::vector<PlannedFault>& planned() {
    static auto* all = new std::vector<PlannedFault>;   // threads may outlive static destruction
    return *all;
}
std::string& report_path() {
    static auto* path = new std::string;
    return *path;
}
std::atomic<uint64_t> counted{0};

void write_text(int file, const std::string& text) {
    if (write(file, text.data(), text.size()) < 0) return;   // the fault matters more
}

void strike(const PlannedFault& fault) {
    write_text(STDERR_FILENO, fault.message);
    if (const int file = open(report_path().c_str(), O_WRONLY | O_APPEND | O_CLOEXEC); file >= 0) {
        write_text(file, fault.report_line);
        close(file);
    }
    if (fault.kills) {
        kill(getpid(), SIGKILL);
        while (true) pause();
    }
    timespec left{static_cast<time_t>(fault.nanoseconds / 1'000'000'000), static_cast<long>(fault.nanoseconds % 1'000'000'000)};
    while (nanosleep(&left, &left) != 0) {
    }
}

}  // namespace

void plan_faults(std::vector<PlannedFault> faults, std::string report) {
    has_faults.store(false, std::memory_order_relaxed);
    std::stable_sort(faults.begin(), faults.end(), [](const PlannedFault& a, const PlannedFault& b) { return a.op < b.op; });
    planned() = std::move(faults);
    report_path() = std::move(report);
    has_faults.store(!planned().empty(), std::memory_order_release);
}

void count_event() {
    const uint64_t number = counted.fetch_add(1, std::memory_order_relaxed) + 1;
    const auto& all = planned();
    auto at = std::lower_bound(all.begin(), all.end(), number, [](const PlannedFault& a, uint64_t n) { return a.op < n; });
    for (; at != all.end() && at->op == number; ++at) strike(*at);
}

uint64_t counted_events() { return counted.load(std::memory_order_relaxed); }

}  // namespace peerlane
