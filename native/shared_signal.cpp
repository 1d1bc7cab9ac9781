#include "shared_signal.h"

#include <cerrno>
#include <unistd.h>

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

}  // namespace

SharedSignal::SharedSignal(std::unique_ptr<SignalPage> page, std::shared_ptr<Ledger> ledger)
    : page_(std::move(page)), ledger_(std::move(ledger)), me_(owner_of(getpid())) {
    for (place_ = 0; place_ < kMembers; ++place_) {
        SignalMember& mine = member(place_);
        uint64_t before = mine.owner.load(std::memory_order_relaxed);
        if (before != 0 && lives(before)) continue;
        if (!mine.owner.compare_exchange_strong(before, me_, std::memory_order_acq_rel)) continue;
        mine.waiting.store(0, std::memory_order_release);
        return;
    }
    throw refuse_handle(Status::too_many, {.exporter = getpid(), .first = kMembers});
}

SharedSignal::~SharedSignal() {
    if (Heap::get().is_forked()) return;
    member(place_).waiting.store(0, std::memory_order_relaxed);
    member(place_).owner.store(0, std::memory_order_release);
}

std::shared_ptr<SharedSignal> SharedSignal::create(std::shared_ptr<Ledger> ledger) {
    return std::make_shared<SharedSignal>(std::make_unique<SignalPage>(kLines), std::move(ledger));
}

std::shared_ptr<SharedSignal> SharedSignal::open(int fd, std::shared_ptr<Ledger> ledger) {
    return std::make_shared<SharedSignal>(std::make_unique<SignalPage>(fd, kLines), std::move(ledger));
}

void SharedSignal::announce() { member(place_).waiting.store(ledger_->slot() + 1, std::memory_order_seq_cst); }

void SharedSignal::ring() {
    for (uint32_t i = 0; i < kMembers; ++i)
        if (member(i).waiting.load(std::memory_order_relaxed) != 0)
            if (const uint64_t slot = member(i).waiting.exchange(0, std::memory_order_acq_rel)) ledger_->ring(slot - 1);
}

uint64_t SharedSignal::lost_to() const {
    uint64_t dead = 0;
    for (uint32_t i = 0; i < kMembers; ++i) {
        const uint64_t owner = member(i).owner.load(std::memory_order_acquire);
        if (owner == 0 || owner == me_) continue;
        if (lives(owner)) return 0;
        dead = owner & UINT32_MAX;
    }
    return dead;
}

bool SharedSignal::others_live() const {
    for (uint32_t i = 0; i < kMembers; ++i) {
        const uint64_t owner = member(i).owner.load(std::memory_order_acquire);
        if (owner != 0 && owner != me_ && lives(owner)) return true;
    }
    return false;
}

Ticket SharedSignal::offer(Grant grant, bool everyone, std::shared_ptr<SharedSignal> self) {
    grant.size = bytes();
    grant.length = bytes();
    grant.entry = LedgerLayout::kNone;
    const Ticket ticket = Broker::get().offer({.grant = grant, .fd = fd(), .everyone = everyone, .gone = [self] {}});
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
