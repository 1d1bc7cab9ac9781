// Signals that several processes record and wait for: a page of a sealed memfd of their own.
#pragma once
#include <memory>
#include <mutex>

#include "broker.h"
#include "ledger.h"
#include "notify.h"

namespace peerlane {

// One of the processes that have the page.  Any of them may write here: numbers are compared, never trusted.
struct SignalMember {
    static constexpr uint64_t kWaits = 1, kLetGo = 2;
    static constexpr unsigned kSlotShift = 2;

    std::atomic<uint64_t> owner{0};   // pid, and the low half of its start time above it; 0: never used
    std::atomic<uint64_t> state{0};   // whether it waits, whether it let go, and above them its slot in the node, plus one
};

class SharedSignal {
  public:
    static constexpr uint32_t kMembers = 64;
    static constexpr uint32_t kRecords = 32;   // of an event, that are told apart

    static std::shared_ptr<SharedSignal> create(std::shared_ptr<Ledger> ledger);       // throws Refusal
    // The one that this process has already, if it has it.  `fd` is not kept; throws Refusal.
    static std::shared_ptr<SharedSignal> open(int fd, std::shared_ptr<Ledger> ledger);
    SharedSignal(std::unique_ptr<SignalPage> page, std::shared_ptr<Ledger> ledger);
    ~SharedSignal();
    SharedSignal(const SharedSignal&) = delete;

    SignalLine& line() const { return page_->line(0); }
    SignalLine& record_line(uint64_t number) const { return page_->line(kFirstRecord + number % kRecords); }
    int fd() const { return page_->fd(); }
    uint64_t bytes() const { return page_->bytes(); }

    // This process is about to look whether it must wait.
    void announce();
    // Wake the processes that wait.
    void ring();
    // The process whose end leaves nobody who could record; 0: somebody else lives, or nobody else ever had it.
    uint64_t lost_to() const;
    bool others_live() const;

    // Offer it to others until the last process with it lets go, or this one does not use it any more.
    Ticket offer(Grant grant, bool everyone, std::shared_ptr<SharedSignal> self);   // throws Refusal
    void abandon();   // this process does not use it any more

    // Of an event: the number of a new record, and of the newest.
    uint64_t issue() { return line().consumed.fetch_add(1, std::memory_order_acq_rel) + 1; }
    uint64_t issued() const { return line().consumed.load(std::memory_order_acquire); }

  private:
    static constexpr uint32_t kLines = 63, kFirstMember = 1, kFirstRecord = kLines - kRecords;

    bool is_there(const SignalMember& member, uint64_t owner) const;   // alive, and in the node still
    SignalMember& member(uint32_t i) const { return reinterpret_cast<SignalMember*>(&page_->line(kFirstMember))[i]; }

    const std::unique_ptr<SignalPage> page_;
    const std::shared_ptr<Ledger> ledger_;
    const uint64_t me_;
    uint32_t place_ = 0;
    const std::shared_ptr<ExportGroup> group_ = std::make_shared<ExportGroup>();
    std::mutex mutex_;
    std::vector<Ticket> tickets_;
};

static_assert(SharedSignal::kMembers * sizeof(SignalMember) == 16 * sizeof(SignalLine));

}  // namespace peerlane
