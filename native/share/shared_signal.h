// Signals that several processes record and wait for: pages of a sealed memfd of their own.  One line, of a notify or an
// event, or a bank of them: the notifies of one end of a channel.
#pragma once
#include <algorithm>
#include <memory>
#include <mutex>

#include "memory/ledger.h"
#include "ranks/members.h"
#include "share/broker.h"
#include "stream/notify.h"

namespace peerlane {

// One of the processes that have the page.  Any of them may write here: numbers are compared, never trusted.
struct SignalMember {
    // In one word, so that a place changes hands at once: whether its process let go, its pid (Linux has no more than
    // 2^22), its slot in the node, and the low 31 bits of its start time.
    static constexpr uint64_t kLetGo = 1, kMaxSlots = 1 << 10;
    static uint64_t owner_of(int32_t pid, uint64_t slot, uint64_t start) {
        return static_cast<uint64_t>(pid) << 1 | slot << 23 | start << 33;
    }
    static int32_t pid_of(uint64_t owner) { return static_cast<int32_t>(owner >> 1 & ((1 << 22) - 1)); }
    static uint64_t slot_of(uint64_t owner) { return owner >> 23 & (kMaxSlots - 1); }
    static bool is_start_of(uint64_t owner, uint64_t start) { return owner >> 33 == (start & INT32_MAX); }

    std::atomic<uint64_t> owner{0};     // 0: never used
    std::atomic<uint64_t> waiting{0};   // while it waits: its slot, plus one
};

class Undelivered;

class SharedSignal {
  public:
    static constexpr uint32_t kLeastMembers = 64;
    static constexpr uint32_t kRecords = 32;   // of an event, that are kept apart
    static constexpr uint32_t kMostLines = 1 << 19;   // of a bank

    // `bank`: how many lines of a bank, 0 for a notify or an event.
    static std::shared_ptr<SharedSignal> create(std::shared_ptr<Ledger> ledger, uint32_t bank = 0);   // throws Refusal
    // The one that this process has already, if it has it.  `fd` is not kept; throws Refusal.
    static std::shared_ptr<SharedSignal> open(int fd, std::shared_ptr<Ledger> ledger, uint32_t bank = 0);
    SharedSignal(std::unique_ptr<SignalPage> page, std::shared_ptr<Ledger> ledger, uint32_t bank);
    ~SharedSignal();
    SharedSignal(const SharedSignal&) = delete;

    uint32_t bank() const { return bank_; }
    SignalLine& line(uint32_t i = 0) const { return page_->line(bank_ == 0 ? 0 : first_of_bank(bank_) + i); }
    SignalLine& record_line(uint64_t number) const { return page_->line(kFirstRecord + number % kRecords); }
    int fd() const { return page_->fd(); }
    uint64_t file_number() const;   // the same in all processes that have it
    const char* start() const { return reinterpret_cast<const char*>(&page_->bell()); }   // of the file
    uint64_t bytes() const { return page_->bytes(); }

    // This process is about to look whether it must wait.
    void announce();
    // Wake the processes that wait.
    void ring() const;
    // The process whose end leaves nobody who could record; 0: somebody else lives, or nobody else ever had it.  `index`:
    // which line of a bank is asked about; of what the dead have held back for it nothing is left then.
    uint64_t lost_to(uint32_t index = 0) const;
    bool others_live(uint32_t index = 0) const;   // and may record still
    bool others_let_go() const;   // of a bank: who live; nobody looks whether they do
    // A wait here ends too when one of these is lost, whoever would have recorded, and when the rank that records here has left.
    // Before anybody waits.
    void belong_to(std::shared_ptr<const Members> members, uint32_t recorder) {
        members_ = std::move(members);
        recorder_ = recorder;
    }
    // Who records here may hold something back.  Before anybody waits.
    void expect(std::shared_ptr<Undelivered> from_peer) { undelivered_ = std::move(from_peer); }
    // A wait has consumed records `first` to `last` of a line.
    void arrive(uint32_t index, uint64_t first, uint64_t last) const {
        if (undelivered_) [[unlikely]] deliver(index, first, last);
    }

    // Offer it to others until the last process with it lets go, or this one does not use it any more.
    ExportKey offer(Grant grant, bool everyone, std::shared_ptr<SharedSignal> self);   // throws Refusal
    void abandon();   // this process does not use it any more
    // To those who wait it is as if this process had closed it; it may go on waiting itself.
    void let_go() const { member(member_index_).owner.fetch_or(SignalMember::kLetGo, std::memory_order_acq_rel); }

    // Of an event: the number of a new record, and of the newest.
    uint64_t issue() { return line().consumed.fetch_add(1, std::memory_order_acq_rel) + 1; }
    uint64_t issued() const { return line().consumed.load(std::memory_order_acquire); }

  private:
    static constexpr uint32_t kLines = 63, kFirstMember = 1, kFirstRecord = kLines - kRecords;
    static constexpr uint32_t kMembersInLine = sizeof(SignalLine) / sizeof(SignalMember);
    // A long bank has room for more processes: that of a membership has 18 lines or more for each rank.
    static constexpr uint32_t kLinesOfBankPerLine = 128;

    static uint32_t member_lines(uint32_t bank) { return std::max(kLeastMembers / kMembersInLine, bank / kLinesOfBankPerLine); }
    static uint32_t first_of_bank(uint32_t bank) { return kFirstMember + member_lines(bank); }
    static uint32_t lines(uint32_t bank) { return bank == 0 ? kLines : first_of_bank(bank) + bank; }
    uint32_t members() const { return member_lines(bank_) * kMembersInLine; }

    uint64_t find_lost() const;
    bool find_others() const;
    bool is_coming(uint32_t index) const;
    void deliver(uint32_t index, uint64_t first, uint64_t last) const;
    bool is_there(uint64_t owner) const;   // alive, and in the node still
    bool is_mine(uint64_t owner) const { return (owner & ~SignalMember::kLetGo) == me_; }
    SignalMember& member(uint32_t i) const { return reinterpret_cast<SignalMember*>(&page_->line(kFirstMember))[i]; }

    const std::unique_ptr<SignalPage> page_;
    const std::shared_ptr<Ledger> ledger_;
    const uint64_t me_;
    const uint32_t bank_;
    uint32_t member_index_ = 0;
    mutable std::atomic<uint64_t> file_number_{0};
    const std::shared_ptr<ExportGroup> group_ = std::make_shared<ExportGroup>();
    std::shared_ptr<const Members> members_;
    uint32_t recorder_ = 0;   // a rank of these
    std::shared_ptr<Undelivered> undelivered_;
    std::mutex mutex_;
    std::vector<ExportKey> exports_;
};

}  // namespace peerlane
