// Wait boards of stuck ranks: circles are found, ranks that can go on are not accused, and no byte that another
// process writes does harm.
#include <algorithm>
#include <cstring>
#include <thread>

#include "check.h"
#include "ledgers.h"
#include "memory/heap.h"
#include "ranks/wait_board.h"

using namespace peerlane;

namespace {

constexpr uint64_t kSpan = 1000;

struct Ranks {
    std::shared_ptr<SharedSignal> bank;
    std::vector<std::unique_ptr<WaitBoard>> boards;

    Ranks(const std::shared_ptr<Ledger>& ledger, uint32_t size) : bank(SharedSignal::create(ledger, WaitBoard::lines(size))) {
        for (uint32_t rank = 0; rank < size; ++rank) boards.push_back(std::make_unique<WaitBoard>(bank, rank));
    }
    WaitBoard& operator[](uint32_t rank) const { return *boards[rank]; }
    // Stuck from `since` to `until`.
    void blocked(uint32_t rank, uint64_t since, uint64_t until, const std::vector<uint32_t>& awaited) const {
        boards[rank]->begin(since, awaited, "rank " + std::to_string(rank));
        boards[rank]->renew(until);
    }
    void leave(uint32_t rank) const { bank->line(rank).word.fetch_add(SignalLine::kRecord); }
    uint64_t* words(uint32_t rank) const {
        return reinterpret_cast<uint64_t*>(&bank->line(static_cast<uint32_t>(boards.size()) + rank * WaitBoard::kLinesEach));
    }
};

using Verdict = std::vector<uint32_t>;

void circles_are_reported(const std::shared_ptr<Ledger>& ledger) {
    const Ranks ranks(ledger, 5);
    ranks.blocked(0, 100, 5000, {1});
    CHECK(ranks[0].circle(kSpan).empty());   // rank 1 has said nothing
    ranks.blocked(1, 300, 5100, {2});
    ranks.blocked(2, 200, 5200, {0});
    for (const uint32_t rank : {0, 1, 2}) CHECK((ranks[rank].circle(kSpan) == Verdict{0, 1, 2}));
    CHECK(ranks[0].circle(4700) == (Verdict{0, 1, 2}) && ranks[0].circle(4701).empty());   // 300 to 5000
    ranks.blocked(3, 400, 5000, {0, 4});
    CHECK(ranks[3].circle(kSpan).empty());   // rank 4 may go on
    CHECK((ranks[3].reached() == Verdict{0, 1, 2, 3, 4}) && (ranks[0].in_vain() == Verdict{0, 1, 2}));
    ranks.leave(4);
    CHECK((ranks[3].circle(kSpan) == Verdict{0, 1, 2, 3}) && (ranks[0].in_vain() == Verdict{0, 1, 2, 3}));
}

void a_rank_that_went_on_is_in_no_circle(const std::shared_ptr<Ledger>& ledger) {
    const Ranks ranks(ledger, 2);
    ranks.blocked(0, 100, 5000, {1});
    ranks.blocked(1, 5001, 9000, {0});   // never both at a time
    CHECK(ranks[0].circle(0).empty() && ranks[1].circle(0).empty() && ranks[0].in_vain().empty());
    ranks.blocked(0, 6000, 9000, {1});
    CHECK((ranks[0].circle(kSpan) == Verdict{0, 1}));
    ranks[1].withdraw();
    CHECK(ranks[0].circle(0).empty() && ranks[1].circle(0).empty());
    CHECK(ranks[1].text(1) == "rank 1");   // other ranks may still be about to report it
    ranks[1].renew(10000);                 // it is not stuck
    CHECK(ranks[0].circle(0).empty());
}

void a_rank_that_waits_for_itself_is_a_circle(const std::shared_ptr<Ledger>& ledger) {
    const Ranks ranks(ledger, 2);
    ranks.blocked(0, 100, 5000, {});
    ranks.blocked(1, 100, 5000, {1});
    CHECK((ranks[0].circle(kSpan) == Verdict{0}) && (ranks[1].circle(kSpan) == Verdict{1}));
}

void children_may_end_waits_for_the_store_alone(const std::shared_ptr<Ledger>& ledger) {
    const Ranks ranks(ledger, 3);
    const auto begun = [&](uint32_t rank, const std::vector<uint32_t>& awaited, uint64_t traits) {
        ranks[rank].begin(100, awaited, "", traits);
        ranks[rank].renew(5000);
    };
    begun(0, {1}, 0);
    begun(1, {0}, WaitBoard::kHasChildren);
    CHECK((ranks[0].circle(kSpan) == Verdict{0, 1}));   // no child can record a notify of theirs
    begun(2, {0}, WaitBoard::kOverStore);
    CHECK(ranks[2].circle(kSpan).empty() && (ranks[0].in_vain() == Verdict{0, 1}));
    begun(1, {0}, 0);
    CHECK((ranks[2].circle(kSpan) == Verdict{0, 1, 2}) && (ranks[0].in_vain() == Verdict{0, 1, 2}));
}

void verdicts_are_for_one_spell(const std::shared_ptr<Ledger>& ledger) {
    const Ranks ranks(ledger, 2);
    ranks.blocked(0, 100, 5000, {1});
    ranks.blocked(1, 100, 5000, {0});
    CHECK(!ranks[0].is_condemned());
    ranks[1].condemn({0, 1, 7});   // there is no rank 7
    CHECK(ranks[0].is_condemned() && ranks[1].is_condemned());
    CHECK(!ranks[0].have_acknowledged({0, 1}));
    ranks[0].acknowledge();
    CHECK(ranks[0].have_acknowledged({0}) && !ranks[0].have_acknowledged({0, 1}));
    ranks.blocked(0, 6000, 9000, {1});   // it has raised, and waits again
    CHECK(!ranks[0].is_condemned() && ranks[1].have_acknowledged({0}));
    ranks.leave(1);
    CHECK(ranks[0].have_acknowledged({0, 1}));
    ranks.blocked(0, 100, 5000, {1});   // a third spell, at the same time
    CHECK(!ranks[0].is_condemned());
    ranks[1].withdraw();
    CHECK(!ranks[1].is_condemned());
}

void texts_are_cut(const std::shared_ptr<Ledger>& ledger) {
    const Ranks ranks(ledger, 2);
    CHECK(ranks[0].text(1).empty() && ranks[0].text(2).empty() && ranks[0].spell(2) == 0);
    for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{WaitBoard::kTextBytes}, size_t{1} << 20}) {
        const std::string text(size, 'x');
        ranks[1].begin(1, {0}, text);
        CHECK(ranks[0].text(1) == text.substr(0, WaitBoard::kTextBytes));
    }
    ranks[1].begin(1, {5, 1u << 31, 1023}, "");   // no such ranks
    CHECK((ranks[1].reached() == Verdict{1}));
}

void any_bytes_do_no_harm(const std::shared_ptr<Ledger>& ledger, std::mt19937_64& random) {
    for (const uint32_t size : {1u, 2u, 65u, 1024u}) {
        const Ranks ranks(ledger, size);
        const int rounds = size < 100 ? scaled(300, 30'000) : scaled(3, 100);
        for (int round = 0; round < rounds; ++round) {
            const auto hostile = static_cast<uint32_t>(random() % size);
            uint64_t* const words = ranks.words(hostile);
            for (uint32_t i = 0; i < WaitBoard::kBytesEach / 8; ++i)
                words[i] = random() % 3 == 0 ? random() : random() % 2 == 0 ? UINT64_MAX : 0;
            if (random() % 2 == 0) words[0] &= ~uint64_t{1};   // an even turn: the words are whole
            const WaitBoard& reader = ranks[static_cast<uint32_t>(random() % size)];
            for (const Verdict& verdict : {reader.circle(0), reader.reached(), reader.in_vain()}) {
                CHECK(verdict.size() <= size && std::is_sorted(verdict.begin(), verdict.end()));
                CHECK(verdict.empty() || verdict.back() < size);
            }
            CHECK(reader.text(hostile).size() <= WaitBoard::kTextBytes);
            (void)reader.is_condemned();
            (void)reader.have_acknowledged({hostile});
            ranks[hostile].begin(round + 1, {hostile}, "again");   // the words that it writes next are whole
            CHECK((ranks[hostile].reached() == Verdict{hostile}) && reader.text(hostile) == "again");
        }
    }
}

// Two ranks that are never stuck at the same time are never accused, whatever half-written words a reader sees.
void readers_see_whole_spells(const std::shared_ptr<Ledger>& ledger) {
    const Ranks ranks(ledger, 2);
    ranks.blocked(0, 1000, 2000, {1});
    std::atomic<bool> ended{false};
    std::thread writer([&] {
        const int rounds = scaled(20'000, 2'000'000);
        for (int round = 0; round < rounds; ++round) {
            ranks[1].begin(3000 + static_cast<uint64_t>(round), {0}, "later");   // behind the spell of rank 0,
            ranks[1].renew(9000 + static_cast<uint64_t>(round));
            ranks[1].withdraw();
        }
        ended = true;
    });
    while (!ended) CHECK(ranks[0].circle(0).empty() && ranks[0].in_vain().empty());
    writer.join();
}

}  // namespace

NATIVE_TEST(test_wait_boards) {
    Heap::get().configure({.window_bytes = kTestWindow});
    auto random = seeded("test_wait_boards");
    const std::shared_ptr<Ledger> ledger = new_ledger();
    RUN(circles_are_reported(ledger));
    RUN(a_rank_that_went_on_is_in_no_circle(ledger));
    RUN(a_rank_that_waits_for_itself_is_a_circle(ledger));
    RUN(children_may_end_waits_for_the_store_alone(ledger));
    RUN(verdicts_are_for_one_spell(ledger));
    RUN(texts_are_cut(ledger));
    RUN(any_bytes_do_no_harm(ledger, random));
    RUN(readers_see_whole_spells(ledger));
    return 0;
}
