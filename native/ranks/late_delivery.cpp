#include "ranks/late_delivery.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stream/stream.h"

namespace peerlane {

namespace {

constexpr uint64_t kPatience = 2'000'000'000, kBetweenLooks = 10'000'000;
constexpr unsigned kSpins = 200;

uint64_t this_holder() {
    return static_cast<uint32_t>(getpid()) | static_cast<uint64_t>(static_cast<uint32_t>(syscall(SYS_gettid))) << 32;
}

}  // namespace

LateArea::Lock::Lock(const LateArea& area) : word_(area.header().lock), me_(this_holder()) {
    const uint64_t start = now_ns();
    uint64_t next_look = start + kBetweenLooks;
    for (unsigned spins = 0;; ++spins) {
        uint64_t holder = 0;
        if (word_.compare_exchange_weak(holder, me_, std::memory_order_acq_rel, std::memory_order_relaxed)) return;
        if (holder == 0) continue;
        if (spins < kSpins) {
            sched_yield();
            continue;
        }
        usleep(50);
        const uint64_t now = now_ns();
        if (now < next_look) continue;
        next_look = now + kBetweenLooks;
        const bool is_ours = static_cast<uint32_t>(holder) == static_cast<uint32_t>(getpid());
        const bool has_ended = !is_ours && !area.bank().others_live();
        if ((has_ended || now - start > kPatience) && word_.compare_exchange_strong(holder, me_, std::memory_order_acq_rel)) return;
    }
}

LateArea::Lock::~Lock() {
    uint64_t mine = me_;
    word_.compare_exchange_strong(mine, 0, std::memory_order_acq_rel);   // it may have been taken away
}

void LateArea::discard() const {
    const auto table_end = static_cast<off_t>(round_up(static_cast<uint64_t>(base() - bank_->start()) + kTable, kPage));
    (void)fallocate(bank_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, table_end,
                    static_cast<off_t>(bank_->bytes()) - table_end);   // refused: they stay
}

void LateArea::stage(uint64_t entry) const {
    header().staged_ns.store(now_ns(), std::memory_order_relaxed);
    this->entry(entry).state.store(LateEntry::staged, std::memory_order_release);
}

void LateArea::fence() const {
    const Lock lock(*this);
    for (uint64_t i = 0; i < kEntries; ++i)
        if (LateEntry& each = entry(i); each.state.load(std::memory_order_acquire) == LateEntry::staged)
            each.operation.fetch_and((uint64_t{1} << LateEntry::kSourceShift) - 1, std::memory_order_relaxed);
}

uint64_t LateArea::record(uint64_t entry, const std::function<uint64_t()>& make) const {
    const Lock lock(*this);   // who consumes the record finds the entry
    const uint64_t number = make();
    if (number == 0) return 0;
    this->entry(entry).before.store(number, std::memory_order_relaxed);
    stage(entry);
    return number;
}

struct Undelivered::Copied {
    uint64_t index, state, sequence, operation, target, offset, size, bytes, before;

    uint64_t kind() const { return operation & 0xFF; }
    uint64_t source() const { return operation >> LateEntry::kSourceShift; }
    bool is_staged() const { return state == LateEntry::staged || state == LateEntry::combining; }
    bool has_begun() const { return state == LateEntry::begun || state == LateEntry::combining; }
};

bool Undelivered::settle(const SharedSignal& bank, uint32_t index) {
    std::lock_guard lock(mutex_);
    if (!from_->bank().others_live()) {
        take_over(bank);
        return false;
    }
    for (uint64_t i = 0; i < LateArea::kEntries; ++i) {
        const LateEntry& entry = from_->entry(i);
        const uint64_t state = entry.state.load(std::memory_order_acquire);
        if ((state == LateEntry::ready || state == LateEntry::begun) && (entry.operation & 0xFF) == LateEntry::notify && entry.target == index)
            return true;
    }
    return false;
}

template <class Match>
std::vector<Undelivered::Copied> Undelivered::find(const Match& match) const {
    std::vector<Copied> entries;
    for (uint64_t i = 0; i < LateArea::kEntries; ++i) {
        const LateEntry& entry = from_->entry(i);
        const uint64_t state = entry.state.load(std::memory_order_acquire);
        if (state == LateEntry::none || state == LateEntry::taken) continue;
        const Copied copied{i, state, entry.sequence, entry.operation, entry.target, entry.offset, entry.size, entry.bytes, entry.before};
        if (match(copied)) entries.push_back(copied);
    }
    std::sort(entries.begin(), entries.end(), [](const Copied& a, const Copied& b) { return a.sequence < b.sequence; });
    return entries;
}

// The sender has ended.  Only a hostile process still writes the entries.
void Undelivered::take_over(const SharedSignal& bank) {
    const LateArea::Lock lock(*from_);
    std::vector<Copied> entries;
    try {
        entries = find([](const Copied&) { return true; });
    } catch (const std::bad_alloc&) {
        return;   // at the next look
    }
    uint64_t room = from_->size();
    for (const Copied& each : entries) apply_or_drop(each, &bank, room);
    if (!entries.empty()) bank.ring();
}

void Undelivered::apply_or_drop(const Copied& entry, const SharedSignal* bank, uint64_t& room) const {
    try {
        apply(entry, bank, room);
    } catch (const Refusal&) {   // the memory was freed or taken back, or the entry is false
    } catch (const std::bad_alloc&) {
    }
    from_->entry(entry.index).state.store(LateEntry::none, std::memory_order_release);
}

void Undelivered::deliver_entries(const std::vector<Copied>& entries) const {
    uint64_t room = from_->size();
    for (const Copied& each : entries)
        if (each.kind() != LateEntry::notify) apply_or_drop(each, nullptr, room);
}

template <class Match>
void Undelivered::deliver_matching(const Match& match) {
    const LateArea::Lock lock(*from_);
    try {
        deliver_entries(find([&](const Copied& each) { return each.is_staged() && match(each); }));
    } catch (const std::bad_alloc&) {   // a later wait delivers them
    }
}

void Undelivered::arrive(uint32_t index, uint64_t first, uint64_t last) {
    const LateArea::Lock lock(*from_);
    try {
        // A program may rely only on the first record that its wait consumed: the others may have come in any order.
        const Copied* by = nullptr;
        const std::vector<Copied> records = find([&](const Copied& each) {
            return each.is_staged() && each.kind() == LateEntry::notify && each.target == index && each.before <= last;
        });
        for (const Copied& each : records)
            if (each.before >= first && (!by || each.before < by->before)) by = &each;
        if (by)
            deliver_entries(find([&](const Copied& each) {
                return each.is_staged() && each.sequence < by->sequence && (each.source() == by->source() || each.source() == LateEntry::kAllSources);
            }));
        for (const Copied& each : records) from_->entry(each.index).state.store(LateEntry::none, std::memory_order_release);
    } catch (const std::bad_alloc&) {   // a later wait delivers them
    }
}

void Undelivered::deliver_source(uint64_t source) {
    deliver_matching([&](const Copied& each) { return each.source() == source; });
}

void Undelivered::deliver_all() {
    deliver_matching([](const Copied&) { return true; });
}

namespace {

struct Attended {
    std::mutex mutex;
    std::vector<std::weak_ptr<Undelivered>> all;
};
Attended& attended() {
    static auto* all = new Attended;
    return *all;
}

}  // namespace

std::atomic<uint64_t> Undelivered::attended_{0};

void Undelivered::attend(const std::shared_ptr<Undelivered>& arriving) {
    std::lock_guard lock(attended().mutex);
    std::erase_if(attended().all, [](const auto& each) { return each.expired(); });
    attended().all.push_back(arriving);
    attended_.store(attended().all.size(), std::memory_order_relaxed);
}

std::vector<std::shared_ptr<Undelivered>> Undelivered::living() {
    std::vector<std::shared_ptr<Undelivered>> living;
    std::lock_guard lock(attended().mutex);
    std::erase_if(attended().all, [](const auto& each) { return each.expired(); });
    attended_.store(attended().all.size(), std::memory_order_relaxed);
    for (const auto& each : attended().all)
        if (auto lives = each.lock()) living.push_back(std::move(lives));
    return living;
}

void Undelivered::deliver_all_if_idle(uint64_t nanoseconds) {
    or_lose([&] {   // without memory: at the next look
        for (const auto& each : living()) each->deliver_if_idle(nanoseconds);
    });
}

// Under the lock: an entry is staged before the lease ends, and delivered, or part() refuses because the lease has ended.
void Undelivered::stage(uint64_t entry) const {
    const LateArea::Lock lock(*from_);
    (void)part(from_->entry(entry).target, 0, 0);
    from_->stage(entry);
}

bool Undelivered::is_for(const Copied& entry, const Memory& part) const {
    return entry.kind() != LateEntry::notify && entry.target < memories_.size() && memories_[entry.target].is_lent_with(part);
}

void Undelivered::deliver_to(const Memory& part) {
    for (const auto& each : living()) each->deliver_matching([&](const Copied& entry) { return each->is_for(entry, part); });
}

bool Undelivered::awaits(const Memory& part) {
    const std::vector<Copied> copied = find([&](const Copied& each) { return !each.is_staged() && is_for(each, part); });
    if (copied.empty() || from_->bank().others_live()) return !copied.empty();
    const LateArea::Lock lock(*from_);
    deliver_entries(copied);
    return false;
}

bool Undelivered::awaits_any_to(const Memory& part) {
    bool awaits = false;
    or_lose([&] {   // without memory: entries that were not delivered are refused
        for (const auto& each : living()) awaits |= each->awaits(part);
    });
    return awaits;
}

void Undelivered::deliver_if_idle(uint64_t nanoseconds) {
    uint64_t staged = from_->header().staged_ns.load(std::memory_order_relaxed);
    if (staged == 0 || now_ns() - std::min(staged, now_ns()) < nanoseconds) return;
    if (from_->header().staged_ns.compare_exchange_strong(staged, 0, std::memory_order_relaxed)) deliver_all();
}

Operand Undelivered::part(uint64_t target, uint64_t offset, uint64_t size) const {
    if (target >= memories_.size()) throw Refusal{.why = Why::out_of_bounds, .size = size};
    const Memory memory(memories_[target], offset, size);
    return {"dst", memory.last_address(), size, memory.pin_writable()};
}

char* Undelivered::bytes(uint64_t offset, uint64_t size) const {
    if (offset > from_->size() || size > from_->size() - offset) throw Refusal{.why = Why::out_of_bounds, .size = size};
    return from_->base() + offset;
}

namespace {

Operand host_part(char* at, uint64_t size) {
    return {"src", reinterpret_cast<uintptr_t>(at), size, Range{.host = at}};
}

}  // namespace

// In pieces that are too short for the copy threads: the caller may hold a lock that a copy thread wants.
void Undelivered::apply(const Copied& entry, const SharedSignal* bank, uint64_t& room) const {
    const auto spend = [](uint64_t& left, uint64_t size) {   // a false entry must not take longer than a true one can
        if (size > left) throw Refusal{.why = Why::out_of_bounds, .size = size};
        left -= size;
    };
    spend(room, entry.size);
    const auto in_pieces = [](uint64_t size, const auto& visit) {
        for (uint64_t at = 0; at < size; at += std::min(size - at, kBrief)) visit(at, std::min(size - at, kBrief));
    };
    const auto write = [&](uint64_t at, uint64_t size, char* from) {
        in_pieces(size, [&](uint64_t done, uint64_t n) {
            copy(part(entry.target, at + done, n), host_part(from + done, n), n);
        });
    };
    switch (entry.kind()) {
        case LateEntry::write:
            (void)part(entry.target, entry.offset, entry.size);   // all of it, or nothing
            write(entry.offset, entry.size, bytes(entry.bytes, entry.size));
            break;
        case LateEntry::blocks: {
            struct Block {
                uint64_t to, from, size;
            };
            if (entry.offset > from_->size() / sizeof(Block)) throw Refusal{.why = Why::out_of_bounds, .size = entry.offset};
            spend(room, entry.offset * sizeof(Block));
            const char* const table = bytes(entry.before, entry.offset * sizeof(Block));
            uint64_t unwritten = entry.target < memories_.size() ? memories_[entry.target].size() : 0;   // blocks do not overlap
            for (uint64_t i = 0; i < entry.offset; ++i) {
                Block block;
                memcpy(&block, table + i * sizeof block, sizeof block);
                if (block.from > entry.size || block.size > entry.size - block.from)
                    throw Refusal{.why = Why::out_of_bounds, .size = block.size};
                (void)part(entry.target, block.to, block.size);
                spend(unwritten, block.size);
                write(block.to, block.size, bytes(entry.bytes, entry.size) + block.from);
            }
            break;
        }
        case LateEntry::reduce: {
            const uint64_t number = entry.operation >> LateEntry::kReductionShift & 0xFFFFFF;
            if (number >= kElements * kCombines) throw Refusal{.why = Why::out_of_bounds, .size = number};
            const Reduction& reduction = reductions()[number / kCombines][number % kCombines];
            char* const from = bytes(entry.bytes, entry.size);
            {
                const Operand whole = part(entry.target, entry.offset, entry.size);
                check_reduced(whole, host_part(from, entry.size), reduction);
            }
            char* const before = bytes(entry.before, entry.size);
            if (entry.has_begun()) {
                write(entry.offset, entry.size, before);
            } else if (entry.is_staged()) {   // the other process can repeat it from the beginning
                in_pieces(entry.size, [&](uint64_t done, uint64_t n) {
                    copy(host_part(before + done, n), part(entry.target, entry.offset + done, n), n);
                });
                from_->entry(entry.index).state.store(LateEntry::combining, std::memory_order_release);
            }
            in_pieces(entry.size, [&](uint64_t done, uint64_t n) {
                reduce(part(entry.target, entry.offset + done, n), host_part(from + done, n), reduction);
            });
            break;
        }
        case LateEntry::notify: {
            if (entry.is_staged() || !bank) break;
            if (entry.target >= bank->bank()) throw Refusal{.why = Why::out_of_bounds, .size = entry.target};
            SignalLine& line = bank->line(static_cast<uint32_t>(entry.target));
            if (!entry.has_begun() || line.recorded() == entry.before)
                line.word.fetch_add(SignalLine::kRecord, std::memory_order_acq_rel);
            break;
        }
        default:
            break;
    }
}

}  // namespace peerlane
