#include "ranks/completions.h"

#include "share/shared_signal.h"

namespace peerlane {

namespace {

// An entry has its position in the upper bits: a reader sees whether it was written in this lap of the ring.
uint64_t packed(uint64_t position, uint32_t number) { return (position + 1) * Completions::kMostNumbers | number; }

}  // namespace

Completions::Completions() : page_(std::make_unique<SignalPage>(kLines)), lines_(&page_->line(0)) {}

Completions::Completions(std::shared_ptr<SharedSignal> bank) : bank_(std::move(bank)), lines_(&bank_->line(0)) {}

std::atomic<uint64_t>& Completions::entry(uint64_t position) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(lines_ + 2)[position % kMost];
}

uint64_t Completions::push(uint32_t number, bool& wake) {
    wake = false;
    uint64_t position = taken().load(std::memory_order_relaxed);
    do {
        if (position - line().consumed.load(std::memory_order_acquire) >= kMost) return 0;
    } while (!taken().compare_exchange_weak(position, position + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    entry(position).store(packed(position, number), std::memory_order_release);
    // After the entry: a waiter that set its bit before this is woken, and one that sets it later sees the entry.
    wake = line().word.fetch_add(SignalLine::kRecord, std::memory_order_acq_rel) & SignalLine::kWaiter;
    return position + 1;
}

std::optional<uint32_t> Completions::front(uint64_t& position) const {
    while (true) {
        const uint64_t packed_entry = entry(position).load(std::memory_order_acquire);
        const uint32_t number = packed_entry % kMostNumbers;
        if (packed_entry == packed(position, number)) return number;
        // A reader that was overtaken by a whole lap finds a later entry at this position, and the queue is not empty.
        const uint64_t now = line().consumed.load(std::memory_order_acquire);
        if (now == position) return std::nullopt;
        position = now;
    }
}

bool Completions::is_empty() const {
    uint64_t position = line().consumed.load(std::memory_order_acquire);
    return !front(position);
}

std::optional<uint32_t> Completions::pop(uint64_t& record) {
    uint64_t position = line().consumed.load(std::memory_order_relaxed);
    std::optional<uint32_t> notify;
    do {   // another thread may consume too
        notify = front(position);
        if (!notify) return std::nullopt;
    } while (!line().consumed.compare_exchange_weak(position, position + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    record = position + 1;
    return notify;
}

}  // namespace peerlane
