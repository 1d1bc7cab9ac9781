// Whether memory that was lent to others may still be used: a word that its owner ends and that borrowers read.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "share/shared_signal.h"

namespace peerlane {

class Lease {
  public:
    // Why it has ended.
    enum End : uint64_t {
        live = 0,
        taken_back = 1,   // its owner withdrew it
        freed = 2,        // the memory is gone
        over = 3,         // the word belongs to another lease by now
    };
    static constexpr uint64_t kMostNumbers = uint64_t{1} << 60;

    // Of this process alone.
    Lease() : own_(live_), word_(&own_) {}
    // A line of a bank that processes share; `number` is no other lease's of that bank.
    Lease(std::shared_ptr<SharedSignal> bank, uint32_t line, uint64_t number)
        : bank_(std::move(bank)), live_(number << kShift), word_(&bank_->line(line).word) {}
    Lease(const Lease&) = delete;

    const uint64_t id = next_id_.fetch_add(1, std::memory_order_relaxed) + 1;   // unique in this process, for texts

    // The owner's.
    void begin() { word_->store(live_, std::memory_order_release); }
    // The first reason stays.
    void end(End why) {
        uint64_t expected = live_;
        word_->compare_exchange_strong(expected, live_ | why, std::memory_order_acq_rel);
    }
    // Other processes may write the word: it is compared, never trusted.
    End ended() const {
        const uint64_t now = word_->load(std::memory_order_acquire);
        if (now == live_) [[likely]] return live;
        return now >> kShift == live_ >> kShift ? static_cast<End>(now & over) : over;
    }

  private:
    static constexpr unsigned kShift = 2;
    static inline std::atomic<uint64_t> next_id_{0};

    const std::shared_ptr<SharedSignal> bank_;
    const uint64_t live_ = uint64_t{1} << kShift;
    std::atomic<uint64_t> own_{0};
    std::atomic<uint64_t>* const word_;
};

using LeasePtr = std::shared_ptr<Lease>;

// Refuses what a lease that has ended stood for.
[[noreturn]] void refuse_ended(const Lease& lease, const char* role, uint64_t address, uint64_t size, uint32_t device);

}  // namespace peerlane
