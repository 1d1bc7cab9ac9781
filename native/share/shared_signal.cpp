#include "share/shared_signal.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>

#include "memory/heap.h"
#include "ranks/late_delivery.h"
#include "share/process.h"

namespace peerlane {

namespace {

uint64_t own(uint64_t slot) {
    const uint64_t start = start_time(getpid());
    if (start == kUnknownStart) throw Refusal{.why = Why::descriptors, .role = "signals", .error = EMFILE};
    return SignalMember::owner_of(getpid(), slot, start);
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

SharedSignal::SharedSignal(std::unique_ptr<SignalPage> page, std::shared_ptr<Ledger> ledger, uint32_t bank)
    : page_(std::move(page)), ledger_(std::move(ledger)), me_(own(ledger_->slot())), bank_(bank) {
    // A process that let go counts for waiting ones as long as it lives; its slot is reused when there is no other.
    for (const bool also_let_go : {false, true})
        for (member_index_ = 0; member_index_ < members(); ++member_index_) {
            SignalMember& mine = member(member_index_);
            uint64_t before = mine.owner.load(std::memory_order_acquire);
            const bool let_go = before & SignalMember::kLetGo;
            if (before != 0 && !(let_go && (also_let_go || is_mine(before))) && is_there(before)) continue;
            if (!mine.owner.compare_exchange_strong(before, me_, std::memory_order_acq_rel)) continue;
            mine.waiting.store(0, std::memory_order_release);
            return;
        }
    throw refuse_handle(Status::too_many_members, {}, {.most = members()});
}

SharedSignal::~SharedSignal() {
    const bool is_parents = SignalMember::pid_of(me_) != getpid();   // a child may be a process of its own by now
    if (Heap::get().is_forked() || is_parents) return;
    member(member_index_).waiting.store(0, std::memory_order_relaxed);
    let_go();
}

std::shared_ptr<SharedSignal> SharedSignal::create(std::shared_ptr<Ledger> ledger, uint32_t bank) {
    return std::make_shared<SharedSignal>(std::make_unique<SignalPage>(lines(bank)), std::move(ledger), bank);
}

std::shared_ptr<SharedSignal> SharedSignal::open(int fd, std::shared_ptr<Ledger> ledger, uint32_t bank) {
    struct stat status{};
    if (fstat(fd, &status) != 0) throw Refusal{.why = Why::descriptors, .role = "signals", .error = errno};
    Opened& all = opened();
    std::lock_guard lock(all.mutex);
    std::erase_if(all.by_file, [](const auto& each) { return each.second.expired(); });
    auto& known = all.by_file[status.st_ino];
    auto mine = known.lock();
    if (!mine || mine->ledger_ != ledger || mine->bank_ != bank) {
        mine = std::make_shared<SharedSignal>(std::make_unique<SignalPage>(fd, lines(bank)), std::move(ledger), bank);
        known = mine;
    }
    return mine;
}

bool SharedSignal::is_there(uint64_t owner) const {
    const int32_t pid = SignalMember::pid_of(owner);
    const uint64_t start = pid > 0 ? start_time(pid) : 0;
    if (start == kUnknownStart || (start == 0 && pid > 0 && is_ending(pid))) return true;
    if (start == 0 || !SignalMember::is_start_of(owner, start)) return false;
    try {
        // The node file has the pid, and the low half of the start time above it.
        return ledger_->owner(SignalMember::slot_of(owner)) == (static_cast<uint32_t>(pid) | start << 32);
    } catch (const Refusal&) {
        return true;   // somebody cut the node's file: who lives is not taken for gone
    }
}

uint64_t SharedSignal::file_number() const {
    uint64_t number = file_number_.load(std::memory_order_relaxed);
    if (number != 0) return number;
    struct stat status {};
    if (fstat(fd(), &status) != 0) return 0;
    file_number_.store(status.st_ino, std::memory_order_relaxed);
    return status.st_ino;
}

void SharedSignal::announce() { member(member_index_).waiting.store(ledger_->slot() + 1, std::memory_order_seq_cst); }

void SharedSignal::ring() const {
    // Places are taken from the first on: behind one that was never used there is none.
    for (uint32_t i = 0; i < members() && member(i).owner.load(std::memory_order_relaxed) != 0; ++i)
        if (member(i).waiting.load(std::memory_order_relaxed) != 0)
            if (const uint64_t slot = member(i).waiting.exchange(0, std::memory_order_acq_rel)) ledger_->ring(slot - 1);
}

bool SharedSignal::is_coming(uint32_t index) const { return undelivered_ && undelivered_->settle(*this, index); }

void SharedSignal::deliver(uint32_t index, uint64_t first, uint64_t last) const { undelivered_->arrive(index, first, last); }

uint64_t SharedSignal::lost_to(uint32_t index) const {
    const uint64_t dead = find_lost();
    return dead != 0 && is_coming(index) ? 0 : dead;
}

bool SharedSignal::others_live(uint32_t index) const { return find_others() || is_coming(index); }

uint64_t SharedSignal::find_lost() const {
    uint64_t dead = members_ ? members_->lost() : 0;
    if (dead == 0 && members_) dead = members_->left(recorder_);
    if (dead != 0) return dead;
    for (uint32_t i = 0; i < members(); ++i) {
        const uint64_t owner = member(i).owner.load(std::memory_order_acquire);
        if (owner == 0 || is_mine(owner)) continue;
        // Whoever let go of a channel's end records nothing there any more.
        const bool has_ended = bank_ != 0 && (owner & SignalMember::kLetGo);
        if (!has_ended && is_there(owner)) return 0;
        dead = static_cast<uint64_t>(SignalMember::pid_of(owner));
    }
    return dead;
}

bool SharedSignal::others_let_go() const {
    bool one_did = false;
    for (uint32_t i = 0; i < members(); ++i) {
        const uint64_t owner = member(i).owner.load(std::memory_order_acquire);
        if (owner == 0) break;   // slots are taken from the first on
        if (is_mine(owner)) continue;
        if (!(owner & SignalMember::kLetGo)) return false;
        one_did = true;
    }
    return one_did;
}

bool SharedSignal::find_others() const {
    if (members_ && members_->lost() != 0) return false;
    for (uint32_t i = 0; i < members(); ++i) {
        const uint64_t owner = member(i).owner.load(std::memory_order_acquire);
        if (owner != 0 && !is_mine(owner) && !(owner & SignalMember::kLetGo) && is_there(owner)) return true;
    }
    return false;
}

ExportKey SharedSignal::offer(Grant grant, bool everyone, std::shared_ptr<SharedSignal> self) {
    grant.size = bytes();
    grant.length = bytes();
    grant.entry = LedgerLayout::kNone;
    const ExportKey key = Broker::get().offer({.grant = grant, .fd = fd(), .everyone = everyone, .gone = [self] {}, .group = group_});
    std::lock_guard lock(mutex_);
    exports_.push_back(key);
    return key;
}

void SharedSignal::abandon() {
    std::vector<ExportKey> exports;
    {
        std::lock_guard lock(mutex_);
        exports.swap(exports_);
    }
    for (const ExportKey& key : exports) Broker::get().abandon(key.index, key.nonce);
}

}  // namespace peerlane
