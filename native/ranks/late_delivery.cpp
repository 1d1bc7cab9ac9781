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

LateDeliveries::Lock::Lock(const LateDeliveries& area) : word_(area.header().lock), me_(this_holder()) {
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

LateDeliveries::Lock::~Lock() {
    uint64_t mine = me_;
    word_.compare_exchange_strong(mine, 0, std::memory_order_acq_rel);   // it may have been taken away
}

void LateDeliveries::discard() const {
    const auto table_end = static_cast<off_t>(round_up(static_cast<uint64_t>(base() - bank_->start()) + kTable, kPage));
    (void)fallocate(bank_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, table_end,
                    static_cast<off_t>(bank_->bytes()) - table_end);   // refused: they stay
}

void LateDeliveries::stage(uint64_t entry) const {
    header().staged_ns.store(now_ns(), std::memory_order_relaxed);
    this->entry(entry).state.store(LateDelivery::staged, std::memory_order_release);
}

void LateDeliveries::fence() const {
    const Lock lock(*this);
    for (uint64_t i = 0; i < kEntries; ++i)
        if (LateDelivery& each = entry(i); each.state.load(std::memory_order_acquire) == LateDelivery::staged)
            each.what.fetch_and((uint64_t{1} << LateDelivery::kSource) - 1, std::memory_order_relaxed);
}

uint64_t LateDeliveries::record(uint64_t entry, const std::function<uint64_t()>& make) const {
    const Lock lock(*this);   // who consumes the record finds the entry
    const uint64_t number = make();
    if (number == 0) return 0;
    this->entry(entry).before.store(number, std::memory_order_relaxed);
    stage(entry);
    return number;
}

struct Undelivered::Copied {
    uint64_t index, state, sequence, what, place, at, size, bytes, before;

    uint64_t kind() const { return what & 0xFF; }
    uint64_t source() const { return what >> LateDelivery::kSource; }
    bool is_staged() const { return state == LateDelivery::staged || state == LateDelivery::combining; }
    bool has_begun() const { return state == LateDelivery::begun || state == LateDelivery::combining; }
};

bool Undelivered::settle(const SharedSignal& bank, uint32_t index) {
    std::lock_guard lock(mutex_);
    if (!from_->bank().others_live()) {
        take_over(bank);
        return false;
    }
    for (uint64_t i = 0; i < LateDeliveries::kEntries; ++i) {
        const LateDelivery& entry = from_->entry(i);
        const uint64_t state = entry.state.load(std::memory_order_acquire);
        if ((state == LateDelivery::ready || state == LateDelivery::begun) && (entry.what & 0xFF) == LateDelivery::notify && entry.place == index)
            return true;
    }
    return false;
}

template <class Match>
std::vector<Undelivered::Copied> Undelivered::find(const Match& match) const {
    std::vector<Copied> found;
    for (uint64_t i = 0; i < LateDeliveries::kEntries; ++i) {
        const LateDelivery& entry = from_->entry(i);
        const uint64_t state = entry.state.load(std::memory_order_acquire);
        if (state == LateDelivery::none || state == LateDelivery::taken) continue;
        const Copied copied{i, state, entry.sequence, entry.what, entry.place, entry.at, entry.size, entry.bytes, entry.before};
        if (match(copied)) found.push_back(copied);
    }
    std::sort(found.begin(), found.end(), [](const Copied& a, const Copied& b) { return a.sequence < b.sequence; });
    return found;
}

// Nobody writes the entries any more but who is hostile.
void Undelivered::take_over(const SharedSignal& bank) {
    const LateDeliveries::Lock lock(*from_);
    std::vector<Copied> found;
    try {
        found = find([](const Copied&) { return true; });
    } catch (const std::bad_alloc&) {
        return;   // at the next look
    }
    uint64_t room = from_->size();
    for (const Copied& each : found) apply_or_drop(each, &bank, room);
    if (!found.empty()) bank.ring();
}

void Undelivered::apply_or_drop(const Copied& entry, const SharedSignal* bank, uint64_t& room) const {
    try {
        apply(entry, bank, room);
    } catch (const Refusal&) {   // that memory is gone, or there never was any
    } catch (const std::bad_alloc&) {
    }
    from_->entry(entry.index).state.store(LateDelivery::none, std::memory_order_release);
}

void Undelivered::bring_all(const std::vector<Copied>& found) const {
    uint64_t room = from_->size();
    for (const Copied& each : found)
        if (each.kind() != LateDelivery::notify) apply_or_drop(each, nullptr, room);
}

template <class Match>
void Undelivered::bring_those(const Match& match) {
    const LateDeliveries::Lock lock(*from_);
    try {
        bring_all(find([&](const Copied& each) { return each.is_staged() && match(each); }));
    } catch (const std::bad_alloc&) {   // a later wait brings them
    }
}

void Undelivered::arrive(uint32_t index, uint64_t first, uint64_t last) {
    const LateDeliveries::Lock lock(*from_);
    try {
        // Records that the wait consumed beyond the first ordered nothing that the program may rely on.
        const Copied* by = nullptr;
        const std::vector<Copied> records = find([&](const Copied& each) {
            return each.is_staged() && each.kind() == LateDelivery::notify && each.place == index && each.before <= last;
        });
        for (const Copied& each : records)
            if (each.before >= first && (!by || each.before < by->before)) by = &each;
        if (by)
            bring_all(find([&](const Copied& each) {
                return each.is_staged() && each.sequence < by->sequence && (each.source() == by->source() || each.source() == LateDelivery::kAll);
            }));
        for (const Copied& each : records) from_->entry(each.index).state.store(LateDelivery::none, std::memory_order_release);
    } catch (const std::bad_alloc&) {   // a later wait brings them
    }
}

void Undelivered::bring(uint64_t source) {
    bring_those([&](const Copied& each) { return each.source() == source; });
}

void Undelivered::bring_all() {
    bring_those([](const Copied&) { return true; });
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
    std::vector<std::shared_ptr<Undelivered>> found;
    std::lock_guard lock(attended().mutex);
    std::erase_if(attended().all, [](const auto& each) { return each.expired(); });
    attended_.store(attended().all.size(), std::memory_order_relaxed);
    for (const auto& each : attended().all)
        if (auto lives = each.lock()) found.push_back(std::move(lives));
    return found;
}

void Undelivered::bring_all_older_than(uint64_t nanoseconds) {
    or_lose([&] {   // without memory: at the next look
        for (const auto& each : living()) each->bring_older_than(nanoseconds);
    });
}

// The lock decides: an entry is staged before the loan ends, and brought, or its sender finds that it has ended.
void Undelivered::stage(uint64_t entry) const {
    const LateDeliveries::Lock lock(*from_);
    (void)part(from_->entry(entry).place, 0, 0);
    from_->stage(entry);
}

bool Undelivered::is_for(const Copied& entry, const Memory& part) const {
    return entry.kind() != LateDelivery::notify && entry.place < memories_.size() && memories_[entry.place].is_lent_with(part);
}

void Undelivered::bring_all_to(const Memory& part) {
    for (const auto& each : living()) each->bring_those([&](const Copied& entry) { return each->is_for(entry, part); });
}

bool Undelivered::awaits(const Memory& part) {
    const std::vector<Copied> copied = find([&](const Copied& each) { return !each.is_staged() && is_for(each, part); });
    if (copied.empty() || from_->bank().others_live()) return !copied.empty();
    const LateDeliveries::Lock lock(*from_);
    bring_all(copied);
    return false;
}

bool Undelivered::awaits_any_to(const Memory& part) {
    bool awaits = false;
    or_lose([&] {   // without memory: what was not brought is refused
        for (const auto& each : living()) awaits |= each->awaits(part);
    });
    return awaits;
}

void Undelivered::bring_older_than(uint64_t nanoseconds) {
    uint64_t staged = from_->header().staged_ns.load(std::memory_order_relaxed);
    if (staged == 0 || now_ns() - std::min(staged, now_ns()) < nanoseconds) return;
    if (from_->header().staged_ns.compare_exchange_strong(staged, 0, std::memory_order_relaxed)) bring_all();
}

Operand Undelivered::part(uint64_t place, uint64_t at, uint64_t size) const {
    if (place >= memories_.size()) throw Refusal{.why = Why::out_of_bounds, .size = size};
    const Memory memory(memories_[place], at, size);
    return {"dst", memory.last_address(), size, memory.pin_writable()};
}

char* Undelivered::bytes(uint64_t at, uint64_t size) const {
    if (at > from_->size() || size > from_->size() - at) throw Refusal{.why = Why::out_of_bounds, .size = size};
    return from_->base() + at;
}

namespace {

Operand host_part(char* at, uint64_t size) {
    return {"src", reinterpret_cast<uintptr_t>(at), size, Range{.host = at}};
}

}  // namespace

// In pieces that no team of threads is called for: locks may be held.
void Undelivered::apply(const Copied& entry, const SharedSignal* bank, uint64_t& room) const {
    const auto spend = [](uint64_t& left, uint64_t size) {   // so that a lie does not cost more than the truth might
        if (size > left) throw Refusal{.why = Why::out_of_bounds, .size = size};
        left -= size;
    };
    spend(room, entry.size);
    const auto in_pieces = [](uint64_t size, const auto& visit) {
        for (uint64_t at = 0; at < size; at += std::min(size - at, kBrief)) visit(at, std::min(size - at, kBrief));
    };
    const auto write = [&](uint64_t at, uint64_t size, char* from) {
        in_pieces(size, [&](uint64_t done, uint64_t n) {
            copy(part(entry.place, at + done, n), host_part(from + done, n), n);
        });
    };
    switch (entry.kind()) {
        case LateDelivery::write:
            (void)part(entry.place, entry.at, entry.size);   // all of it, or nothing
            write(entry.at, entry.size, bytes(entry.bytes, entry.size));
            break;
        case LateDelivery::blocks: {
            struct Block {
                uint64_t to, from, size;
            };
            if (entry.at > from_->size() / sizeof(Block)) throw Refusal{.why = Why::out_of_bounds, .size = entry.at};
            spend(room, entry.at * sizeof(Block));
            const char* const table = bytes(entry.before, entry.at * sizeof(Block));
            uint64_t apart = entry.place < memories_.size() ? memories_[entry.place].size() : 0;   // blocks do not overlap there
            for (uint64_t i = 0; i < entry.at; ++i) {
                Block block;
                memcpy(&block, table + i * sizeof block, sizeof block);
                if (block.from > entry.size || block.size > entry.size - block.from)
                    throw Refusal{.why = Why::out_of_bounds, .size = block.size};
                (void)part(entry.place, block.to, block.size);
                spend(apart, block.size);
                write(block.to, block.size, bytes(entry.bytes, entry.size) + block.from);
            }
            break;
        }
        case LateDelivery::reduce: {
            const uint64_t number = entry.what >> LateDelivery::kNumber & 0xFFFFFF;
            if (number >= kElements * kCombines) throw Refusal{.why = Why::out_of_bounds, .size = number};
            const Reduction& reduction = reductions()[number / kCombines][number % kCombines];
            char* const from = bytes(entry.bytes, entry.size);
            {
                const Operand whole = part(entry.place, entry.at, entry.size);
                check_reduced(whole, host_part(from, entry.size), reduction);
            }
            char* const before = bytes(entry.before, entry.size);
            if (entry.has_begun()) {
                write(entry.at, entry.size, before);
            } else if (entry.is_staged()) {   // so that the other process can repeat it from the beginning
                in_pieces(entry.size, [&](uint64_t done, uint64_t n) {
                    copy(host_part(before + done, n), part(entry.place, entry.at + done, n), n);
                });
                from_->entry(entry.index).state.store(LateDelivery::combining, std::memory_order_release);
            }
            in_pieces(entry.size, [&](uint64_t done, uint64_t n) {
                reduce(part(entry.place, entry.at + done, n), host_part(from + done, n), reduction);
            });
            break;
        }
        case LateDelivery::notify: {
            if (entry.is_staged() || !bank) break;
            if (entry.place >= bank->bank()) throw Refusal{.why = Why::out_of_bounds, .size = entry.place};
            SignalLine& line = bank->line(static_cast<uint32_t>(entry.place));
            if (!entry.has_begun() || line.recorded() == entry.before)
                line.word.fetch_add(SignalLine::kRecord, std::memory_order_acq_rel);
            break;
        }
        default:
            break;
    }
}

}  // namespace peerlane
