// The completion queue of one end of a channel: which of its notifies were recorded, in the order of the records.
#pragma once
#include <optional>

#include "stream/notify.h"

namespace peerlane {

// Lines of a bank that two processes share, or of a page of this process alone: the first counts records and has the
// waiter's bit, the second how many places were given to recorders, the others the numbers of the notifies.  Everything
// there may be written by another process: a number is compared, and never used as an index.
class Completions {
  public:
    static constexpr uint32_t kMost = 1024;   // that nobody waited for yet
    static constexpr uint32_t kLines = 2 + kMost * sizeof(uint64_t) / sizeof(SignalLine);
    static constexpr uint32_t kMostNumbers = 1 << 16;

    Completions();   // throws Refusal
    // `bank` has kLines.
    explicit Completions(std::shared_ptr<SharedSignal> bank);

    SignalLine& line() const { return *lines_; }
    const std::shared_ptr<SharedSignal>& bank() const { return bank_; }
    // The number of the record, 0 if the queue is full.  `wake`: somebody waits.
    uint64_t push(uint32_t number, bool& wake);
    // The notify that was recorded next, if any was; it is consumed then.  `record`: the number of its record.
    std::optional<uint32_t> pop(uint64_t& record);
    bool is_empty() const;

  private:
    // Of the record at `position`, or where others have gone on to meanwhile.
    std::optional<uint32_t> front(uint64_t& position) const;
    std::atomic<uint64_t>& entry(uint64_t position) const;
    std::atomic<uint64_t>& given() const { return lines_[1].word; }

    const std::shared_ptr<SharedSignal> bank_;   // null: of this process alone
    const std::unique_ptr<SignalPage> page_;
    SignalLine* const lines_;
};

}  // namespace peerlane
