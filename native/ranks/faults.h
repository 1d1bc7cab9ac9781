// Faults on purpose: at its n-th logged event a rank is killed, or delayed.
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
    std::string noted;      // appended to the report when it strikes
    std::string said;       // on standard error
};

// In order of `op`; empty: none.  While events are counted only one thread may call this.  `report`: the path of a file.
void plan_faults(std::vector<PlannedFault> faults, std::string report);
inline std::atomic<bool> has_faults{false};
void count_event();
uint64_t counted_events();

// The writer of the log calls it for each event, before it writes and without its lock: a killed rank's log ends before the
// event.
inline void note_event() {
    if (has_faults.load(std::memory_order_relaxed)) [[unlikely]] count_event();
}

}  // namespace peerlane
