// Lines whose records carry numbers.  Several lines share one sequence: record n is made in line n % depth.
#pragma once
#include <cstring>
#include <vector>

#include "stream/scheduler.h"

namespace peerlane {

// Make record `number` in its line, with a word and at most as many bytes as the line has room for.
inline void record_number(Notify& notify, uint64_t number, uint64_t depth, uint64_t word, const char* bytes, uint64_t n) {
    SignalLine& line = notify.signal();
    line.time_ns.store(word, std::memory_order_relaxed);
    if (n != 0) memcpy(line.reserved, bytes, n);
    const uint64_t step = number > depth ? depth : number;
    // One read-modify-write with the waiter's bit, as in Notify::record.
    const uint64_t before = line.word.fetch_add(step * SignalLine::kRecord, std::memory_order_acq_rel);
    if (before & SignalLine::kWaiter) [[unlikely]] Scheduler::get().was_recorded(notify);
}

class SequenceLines {
  public:
    explicit SequenceLines(std::vector<Notify*> lines) : lines_(std::move(lines)) {   // held
        for (Notify* const each : lines_) each->hold();
    }
    ~SequenceLines() {
        for (Notify* const each : lines_) each->drop();
    }
    SequenceLines(const SequenceLines&) = delete;

    uint64_t depth() const { return lines_.size(); }
    Notify& of(uint64_t number) const { return *lines_[number % lines_.size()]; }
    void record(uint64_t number, uint64_t word, const char* bytes, uint64_t n) const {
        record_number(of(number), number, lines_.size(), word, bytes, n);
    }
    bool has(uint64_t number) const { return of(number).signal().recorded() >= number; }
    uint64_t word(uint64_t number) const { return of(number).signal().time_ns.load(std::memory_order_relaxed); }
    const char* bytes(uint64_t number) const { return reinterpret_cast<const char*>(of(number).signal().reserved); }

  private:
    const std::vector<Notify*> lines_;
};

}  // namespace peerlane
