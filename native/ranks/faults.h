// Injected faults: at its n-th logged event a rank is killed or delayed.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace peerlane {

struct PlannedFault {
    uint64_t op;            // the first event is 1
    bool kills;             // else it sleeps
    uint64_t nanoseconds;
    std::string report_line;   // appended to the report when it strikes
    std::string message;       // for standard error
};

// Only one thread may call this while events are counted.  `report`: the path of a file.
void plan_faults(std::vector<PlannedFault> faults, std::string report);
inline std::atomic<bool> has_faults{false};
void count_event();
uint64_t counted_events();

// The log's writer calls it before it writes an event, without its lock: the log of a killed rank ends before the event.
inline void note_event() {
    if (has_faults.load(std::memory_order_relaxed)) [[unlikely]] count_event();
}

}  // namespace peerlane
