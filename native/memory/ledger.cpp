#include "memory/ledger.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/fault_guard.h"
#include "memory/refusal.h"
#include "memory/sharers.h"

namespace peerlane {

namespace {

constexpr unsigned kDeviceShift = 48;
constexpr uint64_t kMostBytes = (uint64_t{1} << kDeviceShift) - 1;   // of one block, as far as it is counted

template <class Touch>
void touch_file(const Touch& touch) {
    FaultGuard guard;
    if (!guarded(guard, touch)) throw Refusal{.why = Why::node_file, .error = ENOSPC};
}

uint64_t plus(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }   // a hostile slot must not wrap it

void raise(std::atomic<uint64_t>* mark, uint64_t to) {
    uint64_t before = mark->load(std::memory_order_relaxed);
    while (before < to && !mark->compare_exchange_weak(before, to, std::memory_order_acq_rel)) {
    }
}

uint64_t bit_of(uint64_t index) { return uint64_t{1} << (index % 64); }

}  // namespace

Ledger::Ledger(int fd, LedgerLayout layout, uint64_t slot) : layout_(layout), slot_(slot), pid_(getpid()),
      held_(std::make_unique<std::atomic<uint64_t>[]>(layout.devices)),
      sharers_(std::make_unique<std::atomic<uint64_t>[]>(layout.slots)), relied_(std::make_unique<std::atomic<uint64_t>[]>(layout.slots)) {
    struct stat facts {};
    if (slot >= layout.slots || fstat(fd, &facts) != 0 ||
        static_cast<uint64_t>(facts.st_size) < layout.file_size())
        throw Refusal{.why = Why::system_memory, .size = layout.file_size(), .error = EINVAL};
    void* got = mmap(nullptr, layout.file_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (got == MAP_FAILED)
        throw Refusal{.why = Why::system_memory, .size = layout.file_size(), .error = errno};
    base_ = static_cast<char*>(got);
    madvise(base_, layout.file_size(), MADV_DONTFORK);
    try {
        touch_file([this] { raise(slots_used(), slot_ + 1); });
    } catch (const Refusal&) {
        munmap(base_, layout.file_size());
        throw;
    }
}

// In a forked child something else may lie there.
Ledger::~Ledger() {
    if (pid_ == getpid()) munmap(base_, layout_.file_size());
}

Ledger::Word* Ledger::field(uint64_t slot, uint64_t index) const {
    return at(LedgerLayout::kHeader + slot * layout_.stride() + index * 8);
}

Ledger::Word* Ledger::holding(uint64_t slot, uint64_t bit) const {
    return at(layout_.holdings_at() + slot * layout_.holdings() + bit / 64 * 8);
}

Ledger::Word* Ledger::peer(uint64_t slot, uint64_t from, uint64_t to, uint64_t& mask) const {
    const uint64_t bit = LedgerLayout::kEntries + from * layout_.devices + to;
    mask = bit_of(bit);
    return holding(slot, bit);
}

void Ledger::add(uint64_t device, uint64_t bytes) {
    Word* mine = field(slot_, LedgerLayout::kFields + device);
    touch_file([=] { mine->fetch_add(bytes, std::memory_order_seq_cst); });
}

bool Ledger::charge(uint64_t device, uint64_t bytes, uint64_t capacity) {
    std::lock_guard lock(mutex_);
    if (left_) return false;
    add(device, bytes);
    try {
        if (used(device) <= capacity) return true;
    } catch (const Refusal&) {
        add(device, -bytes);
        throw;
    }
    add(device, -bytes);
    return false;
}

void Ledger::refund(uint64_t device, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    if (!left_) add(device, -bytes);
}

uint64_t Ledger::used(uint64_t device) const {
    uint64_t total = 0;
    touch_file([this, device, &total] {
        for (uint64_t slot = 0, count = slots(); slot < count; ++slot)
            if (is_live(slot))
                total = plus(total, field(slot, LedgerLayout::kFields + device)->load(std::memory_order_seq_cst));
        total = plus(total, shared(device));
    });
    return total;
}

uint64_t Ledger::held_by_others(uint64_t word) const {
    uint64_t held = 0;
    for (uint64_t slot = 0, count = slots(); slot < count; ++slot)
        if (slot != slot_ && is_live(slot)) held |= holding(slot, word * 64)->load(std::memory_order_seq_cst);
    return held;
}

uint64_t Ledger::shared(uint64_t device) const {
    uint64_t total = held_[device].load(std::memory_order_relaxed);
    const uint64_t used = entries_used()->load(std::memory_order_acquire);
    const uint64_t words = (used < LedgerLayout::kEntries ? used + 63 : LedgerLayout::kEntries) / 64;
    for (uint64_t word = 0; word < words; ++word) {
        uint64_t held = held_by_others(word) & ~holding(slot_, word * 64)->load(std::memory_order_seq_cst);
        for (; held != 0; held &= held - 1) {
            const uint64_t index = word * 64 + static_cast<uint64_t>(__builtin_ctzll(held));
            const uint64_t facts = entry(index)[1].load(std::memory_order_acquire);
            if (facts >> kDeviceShift == device) total = plus(total, facts & kMostBytes);
        }
    }
    return total;
}

// The facts may be of a hostile process.
void Ledger::count_held(uint64_t facts, int64_t holds) {
    const uint64_t device = facts >> kDeviceShift, bytes = facts & kMostBytes;
    if (device < layout_.devices) held_[device].fetch_add(static_cast<uint64_t>(holds) * bytes, std::memory_order_relaxed);
}

// The bit is the claim: who finds another's bit beside the own one steps back, and so does the other.  Between a first
// look and the store an importer may hold what a dead process had listed there: the id is taken away, then looked again.
uint64_t Ledger::list(uint64_t block, uint64_t device, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    if (left_) throw Refusal{.why = Why::closed};
    uint64_t listed = LedgerLayout::kNone;
    const uint64_t facts = device << kDeviceShift | std::min(bytes, kMostBytes);
    touch_file([&, this] {
        for (uint64_t word = cursor_ / 64; word < LedgerLayout::kEntries / 64; ++word) {
            Word* mine = holding(slot_, word * 64);
            uint64_t held = held_by_others(word) | mine->load(std::memory_order_relaxed);
            while (~held != 0) {
                const auto bit = static_cast<uint64_t>(__builtin_ctzll(~held));
                const uint64_t mask = uint64_t{1} << bit;
                mine->fetch_or(mask, std::memory_order_seq_cst);
                const auto step_back = [&] {
                    mine->fetch_and(~mask, std::memory_order_seq_cst);
                    held |= mask;
                };
                if (held_by_others(word) & mask) {
                    step_back();
                    continue;
                }
                Word* const id = entry(word * 64 + bit);
                const uint64_t before = id->exchange(0, std::memory_order_seq_cst);
                if (held_by_others(word) & mask) {
                    id->store(before, std::memory_order_seq_cst);
                    step_back();
                    continue;
                }
                listed = word * 64 + bit;
                cursor_ = listed;
                entry(listed)[1].store(facts, std::memory_order_relaxed);
                entry(listed)->store(block, std::memory_order_release);
                raise(entries_used(), listed + 1);
                return;
            }
        }
    });
    if (listed == LedgerLayout::kNone) throw Refusal{.why = Why::shared_blocks, .most = LedgerLayout::kEntries};
    try {
        holds_[listed] = {.count = 1, .facts = facts};
    } catch (const std::bad_alloc&) {
        touch_file([&, this] { holding(slot_, listed)->fetch_and(~bit_of(listed), std::memory_order_seq_cst); });
        throw;
    }
    count_held(facts, 1);
    return listed;
}

bool Ledger::hold(uint64_t index, uint64_t block) {
    std::lock_guard lock(mutex_);
    if (left_ || index >= LedgerLayout::kEntries) return false;
    Hold& mine = holds_[index];
    bool held = false;
    touch_file([&, this] {
        if (mine.count == 0) holding(slot_, index)->fetch_or(bit_of(index), std::memory_order_seq_cst);
        held = entry(index)->load(std::memory_order_seq_cst) == block;
        if (mine.count == 0 && held) mine.facts = entry(index)[1].load(std::memory_order_relaxed);
        if (mine.count == 0 && !held) holding(slot_, index)->fetch_and(~bit_of(index), std::memory_order_seq_cst);
    });
    if (held && mine.count == 0) count_held(mine.facts, 1);
    mine.count += held;
    if (mine.count == 0) holds_.erase(index);
    return held;
}

uint64_t Ledger::find(uint64_t block) const {
    uint64_t listed = LedgerLayout::kNone;
    touch_file([&, this] {
        const uint64_t used = entries_used()->load(std::memory_order_acquire);
        for (uint64_t index = 0; index < std::min(used, LedgerLayout::kEntries); ++index)
            if (entry(index)->load(std::memory_order_acquire) == block) {
                listed = index;
                return;
            }
    });
    return listed;
}

void Ledger::let_go(uint64_t index) {
    std::lock_guard lock(mutex_);
    if (left_) return;
    const auto hold = holds_.find(index);
    if (hold == holds_.end() || --hold->second.count != 0) return;
    const uint64_t facts = hold->second.facts;
    holds_.erase(hold);
    count_held(facts, -1);
    touch_file([=, this] { holding(slot_, index)->fetch_and(~bit_of(index), std::memory_order_seq_cst); });
    cursor_ = std::min(cursor_, index);
}

uint64_t Ledger::holders(uint64_t index) const {
    uint64_t total = 0;
    touch_file([&, this] {
        for (uint64_t slot = 0, count = slots(); slot < count; ++slot)
            total += is_live(slot) && (holding(slot, index)->load(std::memory_order_seq_cst) & bit_of(index)) != 0;
    });
    return total;
}

void Ledger::set_peer(uint64_t from, uint64_t to, bool enabled) {
    std::lock_guard lock(mutex_);
    if (left_) return;
    uint64_t mask;
    Word* word = peer(slot_, from, to, mask);
    touch_file([=] { enabled ? word->fetch_or(mask) : word->fetch_and(~mask); });
}

uint64_t Ledger::owner(uint64_t slot) const {
    uint64_t word = 0;
    if (slot < layout_.slots) touch_file([&, this] { word = field(slot, 0)->load(std::memory_order_acquire); });
    return word;
}

void Ledger::ring(uint64_t slot) const {
    if (slot >= layout_.slots) return;
    try {
        touch_file([=, this] { bell_of(slot).ring(); });
    } catch (const Refusal&) {
        // Somebody cut the node's file: who waits looks again by himself.
    }
}

bool Ledger::has_enabled(uint64_t slot, uint64_t from, uint64_t to) const {
    uint64_t mask;
    return is_live(slot) && (peer(slot, from, to, mask)->load(std::memory_order_acquire) & mask) != 0;
}

// Once they have shared some, they are no strangers while both live: a handle that is closed changes no result.
bool Ledger::shares_memory_with(uint64_t slot) const {
    const uint64_t owner = field(slot, 0)->load(std::memory_order_acquire);
    if (sharers_[slot].load(std::memory_order_relaxed) == owner) return true;
    if (is_sharer(owner)) {
        sharers_[slot].store(owner, std::memory_order_relaxed);
        return true;
    }
    const uint64_t used = std::min(entries_used()->load(std::memory_order_acquire), LedgerLayout::kEntries);
    for (uint64_t index = 0; index < used; index += 64) {
        if ((holding(slot_, index)->load(std::memory_order_seq_cst) & holding(slot, index)->load(std::memory_order_seq_cst)) == 0)
            continue;
        sharers_[slot].store(owner, std::memory_order_relaxed);
        return true;
    }
    return false;
}

uint64_t Ledger::enabler(uint64_t from, uint64_t to) const {
    uint64_t enabling = LedgerLayout::kNone;
    touch_file([&, this] {
        if (has_enabled(slot_, from, to)) {
            enabling = slot_;
            return;
        }
        const bool all = counts_all_.load(std::memory_order_relaxed);
        for (uint64_t slot = 0, count = slots(); slot < count && enabling == LedgerLayout::kNone; ++slot)
            if (has_enabled(slot, from, to) && (all || shares_memory_with(slot))) enabling = slot;
    });
    return enabling;
}

void Ledger::rely_on(uint64_t slot) const {
    if (slot != slot_) relied_[slot].store(owner(slot), std::memory_order_relaxed);
}

std::vector<uint64_t> Ledger::relied_on() const {
    std::vector<uint64_t> owners;
    for (uint64_t slot = 0; slot < layout_.slots; ++slot)
        if (const uint64_t owner = relied_[slot].load(std::memory_order_relaxed)) owners.push_back(owner);
    return owners;
}

std::vector<uint64_t> Ledger::enablers(uint64_t from, uint64_t to) const {
    std::vector<uint64_t> owners;
    for (uint64_t slot = 0; slot < layout_.slots; ++slot) {
        bool is_enabled = false;
        touch_file([&, this] { is_enabled = slot < slots() && slot != slot_ && has_enabled(slot, from, to); });
        if (is_enabled) owners.push_back(owner(slot));
    }
    return owners;
}

}  // namespace peerlane
