#include "shared_signal.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>

#include "heap.h"
#include "process.h"

namespace peerlane {

namespace {

constexpr unsigned kStartShift = 32;

uint64_t owner_of(int32_t pid) {
    const uint64_t start = start_time(pid);
    if (start == kUnknownStart) throw Refusal{.why = Why::descriptors, .role = "signals", .error = EMFILE};
    return static_cast<uint32_t>(pid) | start << kStartShift;
}

bool lives(uint64_t owner) {
    const auto pid = static_cast<int32_t>(owner & UINT32_MAX);
    const uint64_t start = pid > 0 ? start_time(pid) : 0;
    return start == kUnknownStart || (start != 0 && static_cast<uint32_t>(start) == owner >> kStartShift);
}

// By the file behind the page: a process that opens a signal again is one member all the same.
struct Opened {
    std::mutex mutex;
    std::unordered_map<ino_t, std::weak_ptr<SharedSignal>> by_file;
};
Opened& opened() {
    static auto* all = new Opened;
    return *all;
}

}  // namespace

SharedSignal::SharedSignal(std::unique_ptr<SignalPage> page, std::shared_ptr<Ledger> ledger)
    : page_(std::move(page)), ledger_(std::move(ledger)), me_(owner_of(getpid())) {
    // Who let go counts for those who wait as long as he lives; his place is taken when there is no other.
    for (const bool also_let_go : {false, true})
        for (place_ = 0; place_ < kMembers; ++place_) {
            SignalMember& mine = member(place_);
            uint64_t before = mine.owner.load(std::memory_order_relaxed);
            const bool let_go = mine.state.load(std::memory_order_acquire) & SignalMember::kLetGo;
            if (before != 0 && !(let_go && (also_let_go || before == me_)) && is_there(mine, before)) continue;
            if (!mine.owner.compare_exchange_strong(before, me_, std::memory_order_acq_rel)) continue;
            mine.state.store((ledger_->slot() + 1) << SignalMember::kSlotShift, std::memory_order_release);
            return;
        }
    throw refuse_handle(Status::too_many_members, {.first = kMembers});
}

SharedSignal::~SharedSignal() {
    if (!Heap::get().is_forked()) member(place_).state.fetch_or(SignalMember::kLetGo, std::memory_order_acq_rel);
}

std::shared_ptr<SharedSignal> SharedSignal::create(std::shared_ptr<Ledger> ledger) {
    return std::make_shared<SharedSignal>(std::make_unique<SignalPage>(kLines), std::move(ledger));
}

std::shared_ptr<SharedSignal> SharedSignal::open(int fd, std::shared_ptr<Ledger> ledger) {
    struct stat found{};
    if (fstat(fd, &found) != 0) throw Refusal{.why = Why::descriptors, .role = "signals", .error = errno};
    Opened& all = opened();
    std::lock_guard lock(all.mutex);
    std::erase_if(all.by_file, [](const auto& each) { return each.second.expired(); });
    auto& known = all.by_file[found.st_ino];
    auto mine = known.lock();
    if (!mine || mine->ledger_ != ledger) {
        mine = std::make_shared<SharedSignal>(std::make_unique<SignalPage>(fd, kLines), std::move(ledger));
        known = mine;
    }
    return mine;
}

bool SharedSignal::is_there(const SignalMember& member, uint64_t owner) const {
    const uint64_t slot = member.state.load(std::memory_order_acquire) >> SignalMember::kSlotShift;
    return lives(owner) && (slot == 0 || ledger_->owner(slot - 1) == owner);
}

void SharedSignal::announce() { member(place_).state.fetch_or(SignalMember::kWaits, std::memory_order_seq_cst); }

void SharedSignal::ring() {
    for (uint32_t i = 0; i < kMembers; ++i) {
        auto& state = member(i).state;
        if (!(state.load(std::memory_order_relaxed) & SignalMember::kWaits)) continue;
        const uint64_t before = state.fetch_and(~SignalMember::kWaits, std::memory_order_acq_rel);
        if (before & SignalMember::kWaits) ledger_->ring((before >> SignalMember::kSlotShift) - 1);
    }
}

uint64_t SharedSignal::lost_to() const {
    uint64_t dead = 0;
    for (uint32_t i = 0; i < kMembers; ++i) {
        const uint64_t owner = member(i).owner.load(std::memory_order_acquire);
        if (owner == 0 || owner == me_) continue;
        if (is_there(member(i), owner)) return 0;
        dead = owner & UINT32_MAX;
    }
    return dead;
}

bool SharedSignal::others_live() const {
    for (uint32_t i = 0; i < kMembers; ++i) {
        const SignalMember& other = member(i);
        const uint64_t owner = other.owner.load(std::memory_order_acquire);
        const bool let_go = other.state.load(std::memory_order_acquire) & SignalMember::kLetGo;
        if (owner != 0 && owner != me_ && !let_go && is_there(other, owner)) return true;
    }
    return false;
}

Ticket SharedSignal::offer(Grant grant, bool everyone, std::shared_ptr<SharedSignal> self) {
    grant.size = bytes();
    grant.length = bytes();
    grant.entry = LedgerLayout::kNone;
    const Ticket ticket = Broker::get().offer({.grant = grant, .fd = fd(), .everyone = everyone, .gone = [self] {}, .group = group_});
    std::lock_guard lock(mutex_);
    tickets_.push_back(ticket);
    return ticket;
}

void SharedSignal::abandon() {
    std::vector<Ticket> tickets;
    {
        std::lock_guard lock(mutex_);
        tickets.swap(tickets_);
    }
    for (const Ticket& ticket : tickets) Broker::get().abandon(ticket.index, ticket.nonce);
}

}  // namespace peerlane
