#include "ranks/wait_board.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace peerlane {

WaitBoard::WaitBoard(std::shared_ptr<SharedSignal> bank, uint32_t rank)
    : bank_(std::move(bank)), ranks_(bank_->bank() / lines(1)), rank_(rank) {}

WaitBoard::Word* WaitBoard::words(uint32_t rank) const {
    return reinterpret_cast<Word*>(&bank_->line(ranks_ + rank * kLinesEach));
}

// The version is odd during a change.  A reader that sees an odd version, or two different ones, drops the report.
template <class Write>
void WaitBoard::change(const Write& write) {
    Word* const at = words(rank_);
    const uint64_t version = at[kVersion].load(std::memory_order_relaxed) | 1;
    at[kVersion].store(version, std::memory_order_relaxed);
    write(at);   // each word with release: a reader of a new word also sees the odd version
    at[kVersion].store(version + 1, std::memory_order_release);
}

void WaitBoard::begin(uint64_t now, const std::vector<uint32_t>& awaited, std::string_view text, uint64_t traits) {
    last_ = spell_ = std::max(now, last_ + 1);
    uint64_t bits[kAwaitedWords] = {};
    for (const uint32_t rank : awaited)
        if (rank < ranks_) bits[rank / 64] |= uint64_t{1} << rank % 64;
    const uint64_t length = std::min<uint64_t>(text.size(), kTextBytes);
    change([&](Word* at) {
        at[kSpell].store(spell_, std::memory_order_release);
        at[kSince].store(now, std::memory_order_release);
        at[kUntil].store(now, std::memory_order_release);
        at[kTraits].store(traits, std::memory_order_release);
        for (uint32_t i = 0; i < kAwaitedWords; ++i) at[kAwaited + i].store(bits[i], std::memory_order_release);
        at[kLength].store(length, std::memory_order_release);
        for (uint64_t i = 0; i < length; i += sizeof(uint64_t)) {
            uint64_t part = 0;
            memcpy(&part, text.data() + i, std::min<uint64_t>(sizeof part, length - i));
            at[kText + i / sizeof part].store(part, std::memory_order_release);
        }
    });
}

void WaitBoard::renew(uint64_t now) {
    if (spell_ != 0) words(rank_)[kUntil].store(now, std::memory_order_release);
}

// The text stays: other ranks may be about to show it.
void WaitBoard::withdraw() {
    if (std::exchange(spell_, 0) == 0) return;
    change([](Word* at) { at[kSince].store(0, std::memory_order_release); });
}

WaitBoard::Report WaitBoard::read(uint32_t rank) const {
    const Word* const at = words(rank);
    const uint64_t version = at[kVersion].load(std::memory_order_acquire);
    Report report{at[kSince].load(std::memory_order_acquire), at[kUntil].load(std::memory_order_acquire),
              at[kTraits].load(std::memory_order_acquire)};
    for (uint32_t i = 0; i < kAwaitedWords; ++i) report.awaited[i] = at[kAwaited + i].load(std::memory_order_acquire);
    if (version % 2 != 0 || at[kVersion].load(std::memory_order_relaxed) != version) report.since = 0;   // a change is under way: as if it were not blocked
    return report;
}

std::vector<uint32_t> WaitBoard::follow(uint32_t from, bool only_blocked, uint64_t overlap) const {
    std::vector<uint32_t> ranks{from};
    std::vector<bool> seen(ranks_);
    seen[from] = true;
    uint64_t since = 0, until = UINT64_MAX, traits = 0;
    for (size_t next = 0; next < ranks.size(); ++next) {
        const Report report = read(ranks[next]);
        if (only_blocked && report.since == 0) return {};
        since = std::max(since, report.since);
        until = std::min(until, report.until);
        traits |= report.traits;
        for (uint32_t word = 0; word < kAwaitedWords; ++word)
            for (uint64_t bits = report.awaited[word]; bits != 0; bits &= bits - 1) {
                const uint32_t rank = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
                if (rank >= ranks_ || seen[rank] || has_left(rank)) continue;
                seen[rank] = true;
                ranks.push_back(rank);
            }
    }
    if (only_blocked && (until < since || until - since < overlap)) return {};
    if (only_blocked && (traits & kOverStore) && (traits & kHasChildren)) return {};
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

std::vector<uint32_t> WaitBoard::in_vain() const {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < ranks_; ++rank)
        if (!has_left(rank) && !follow(rank, true, 0).empty()) ranks.push_back(rank);
    return ranks;
}

void WaitBoard::condemn(const std::vector<uint32_t>& ranks) const {
    for (const uint32_t rank : ranks)
        if (rank < ranks_) words(rank)[kCondemned].store(spell(rank), std::memory_order_release);
}

bool WaitBoard::is_condemned() const {
    return spell_ != 0 && words(rank_)[kCondemned].load(std::memory_order_acquire) == spell_;
}

void WaitBoard::acknowledge() const { words(rank_)[kAcknowledged].store(spell_, std::memory_order_release); }

// A rank that has raised may be blocked again, in a new spell: what it acknowledged is the spell that was condemned.
bool WaitBoard::have_acknowledged(const std::vector<uint32_t>& ranks) const {
    return std::all_of(ranks.begin(), ranks.end(), [this](uint32_t rank) {
        if (rank >= ranks_ || has_left(rank)) return true;
        const uint64_t acknowledged = words(rank)[kAcknowledged].load(std::memory_order_acquire);
        const uint64_t condemned = words(rank)[kCondemned].load(std::memory_order_acquire);
        return acknowledged == spell(rank) || (condemned != 0 && acknowledged == condemned);
    });
}

uint64_t WaitBoard::spell(uint32_t rank) const {
    return rank < ranks_ ? words(rank)[kSpell].load(std::memory_order_acquire) : 0;
}

std::string WaitBoard::text(uint32_t rank) const {
    if (rank >= ranks_) return {};
    const Word* const at = words(rank);
    const uint64_t length = std::min<uint64_t>(at[kLength].load(std::memory_order_acquire), kTextBytes);
    std::string text(length, '\0');
    for (uint64_t i = 0; i < length; i += sizeof(uint64_t)) {
        const uint64_t part = at[kText + i / sizeof part].load(std::memory_order_relaxed);
        memcpy(text.data() + i, &part, std::min<uint64_t>(sizeof part, length - i));
    }
    return text;
}

}  // namespace peerlane
