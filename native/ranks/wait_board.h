// A rank whose operations all wait reports on the board which ranks it waits for.  All ranks of its group can read that.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ranks/turns.h"
#include "share/shared_signal.h"

namespace peerlane {

// It is a part of the bank of the group's membership, behind the line that each rank records when it leaves.  Any rank may write
// anything anywhere: numbers are compared, lengths are cut, and texts must be escaped before they are shown.
class WaitBoard {
  public:
    static constexpr uint32_t kMostRanks = 1024, kLinesEach = 16, kBytesEach = kLinesEach * sizeof(SignalLine);
    static constexpr uint32_t kTextBytes = kBytesEach - 24 * 8;   // behind the numbers
    // Of the bank; the lines of Turns follow the board.
    static uint32_t lines(uint32_t ranks) { return ranks * (1 + kLinesEach + Turns::kLinesEach); }
    static uint32_t first_of_turns(uint32_t ranks) { return ranks * (1 + kLinesEach); }

    WaitBoard(std::shared_ptr<SharedSignal> bank, uint32_t rank);   // the bank has lines(ranks)
    WaitBoard(const WaitBoard&) = delete;

    // Further properties of a blocked rank.
    enum Trait : uint64_t {
        kOverStore = 1,     // any process that has the address of the store may end its wait
        kHasChildren = 2,   // it has child processes
    };

    // This rank is blocked from `now` (nanoseconds of the steady clock) until one of the awaited ranks does something.
    void begin(uint64_t now, const std::vector<uint32_t>& awaited, std::string_view text, uint64_t traits = 0);
    void renew(uint64_t now);   // it has been blocked since begin()
    void withdraw();

    // This rank, those that it waits for, those that they wait for, and so on, if all of them were blocked during one common
    // `overlap` of nanoseconds.  Else nothing: one of them can go on, or a child process of one can.  A rank that has left counts as
    // not awaited.
    std::vector<uint32_t> circle(uint64_t overlap) const { return follow(rank_, true, overlap); }
    std::vector<uint32_t> reached() const { return follow(rank_, false, 0); }   // whether or not they are blocked
    std::vector<uint32_t> in_vain() const;   // all ranks that wait, directly or not, only for ranks that were blocked at one time
    // Let the waits of these ranks fail, if they are still in the same wait.
    void condemn(const std::vector<uint32_t>& ranks) const;
    bool is_condemned() const;
    // This rank has seen that it is condemned, and will raise the error in its program whatever others do meanwhile.
    void acknowledge() const;
    bool have_acknowledged(const std::vector<uint32_t>& ranks) const;   // or have left

    uint64_t spell(uint32_t rank) const;      // changes with every begin()
    std::string text(uint32_t rank) const;    // of its last begin()
    uint32_t ranks() const { return ranks_; }

  private:
    using Word = std::atomic<uint64_t>;
    enum Field : uint32_t { kVersion, kSince, kUntil, kCondemned, kAcknowledged, kSpell, kLength, kTraits, kAwaited };
    static constexpr uint32_t kAwaitedWords = kMostRanks / 64, kText = kAwaited + kAwaitedWords;
    static_assert(kText * sizeof(Word) + kTextBytes == kBytesEach && Word::is_always_lock_free);

    struct Report {
        uint64_t since = 0, until = 0;   // 0: it is not blocked
        uint64_t traits = 0, awaited[kAwaitedWords] = {};
    };
    Report read(uint32_t rank) const;
    std::vector<uint32_t> follow(uint32_t from, bool only_blocked, uint64_t overlap) const;
    Word* words(uint32_t rank) const;
    bool has_left(uint32_t rank) const { return bank_->line(rank).recorded() != 0; }
    template <class Write>
    void change(const Write& write);

    const std::shared_ptr<SharedSignal> bank_;
    const uint32_t ranks_, rank_;
    uint64_t spell_ = 0;      // of the present one; 0: this rank is not blocked
    uint64_t last_ = 0;
};

}  // namespace peerlane
