// The completion queue of one end of a channel: which of its notifies were recorded, in the order of the records.
#pragma once
#include <optional>

#include "stream/notify.h"

namespace peerlane {

// A ring in a bank that two processes share, or in a page of this process alone.  The first line counts records and has the
// waiter's bit, the second counts the entries that recorders have taken, the others are the entries: the numbers of notifies.
// Another process may write anything there: a number is compared, and never used as an index.
class Completions {
  public:
    static constexpr uint32_t kMost = 1024;   // entries that were not consumed yet
    static constexpr uint32_t kLines = 2 + kMost * sizeof(uint64_t) / sizeof(SignalLine);
    static constexpr uint32_t kMostNumbers = 1 << 16;

    Completions();   // throws Refusal
    // `bank` has kLines.
    explicit Completions(std::shared_ptr<SharedSignal> bank);

    SignalLine& line() const { return *lines_; }
    const std::shared_ptr<SharedSignal>& bank() const { return bank_; }
    // The number of the record, 0 if the queue is full.  `wake`: somebody waits.
    uint64_t push(uint32_t number, bool& wake);
    // Consume the next entry, if there is one, and return its notify.  `record`: the number of its record.
    std::optional<uint32_t> pop(uint64_t& record);
    bool is_empty() const;

  private:
    // The notify of the entry at `position`, which moves on if others have consumed that one.
    std::optional<uint32_t> front(uint64_t& position) const;
    std::atomic<uint64_t>& entry(uint64_t position) const;
    std::atomic<uint64_t>& taken() const { return lines_[1].word; }

    const std::shared_ptr<SharedSignal> bank_;   // null: of this process alone
    const std::unique_ptr<SignalPage> page_;
    SignalLine* const lines_;
};

}  // namespace peerlane
