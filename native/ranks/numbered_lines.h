// Lines of notifies whose records have numbers: of several that one side records in turns, each is for every n-th number.
#pragma once
#include <cstring>
#include <vector>

#include "stream/scheduler.h"

namespace peerlane {

// Record a number, with a word and at most as many bytes as the line has room for.  `depth`: how many lines take turns.
inline void tell_number(Notify& notify, uint64_t number, uint64_t depth, uint64_t word, const char* bytes, uint64_t n) {
    SignalLine& line = notify.signal();
    line.time_ns.store(word, std::memory_order_relaxed);
    if (n != 0) memcpy(line.reserved, bytes, n);
    const uint64_t step = number > depth ? depth : number;
    // One read-modify-write with the waiter's bit, as in Notify::record.
    const uint64_t before = line.word.fetch_add(step * SignalLine::kRecord, std::memory_order_acq_rel);
    if (before & SignalLine::kWaiter) [[unlikely]] Scheduler::get().was_recorded(notify);
}

class NumberedLines {
  public:
    explicit NumberedLines(std::vector<Notify*> lines) : lines_(std::move(lines)) {   // held
        for (Notify* const each : lines_) each->hold();
    }
    ~NumberedLines() {
        for (Notify* const each : lines_) each->drop();
    }
    NumberedLines(const NumberedLines&) = delete;

    uint64_t depth() const { return lines_.size(); }
    Notify& of(uint64_t number) const { return *lines_[number % lines_.size()]; }
    void tell(uint64_t number, uint64_t word, const char* bytes, uint64_t n) const {
        tell_number(of(number), number, lines_.size(), word, bytes, n);
    }
    bool has(uint64_t number) const { return of(number).signal().recorded() >= number; }
    uint64_t word(uint64_t number) const { return of(number).signal().time_ns.load(std::memory_order_relaxed); }
    const char* bytes(uint64_t number) const { return reinterpret_cast<const char*>(of(number).signal().reserved); }

  private:
    const std::vector<Notify*> lines_;
};

}  // namespace peerlane
