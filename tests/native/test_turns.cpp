// Turns of ranks: one runs at a time, in an order that the seed decides, and nobody is held up by who does not go on.
#include <chrono>
#include <cstring>
#include <thread>

#include "check.h"
#include "ledgers.h"
#include "memory/heap.h"
#include "ranks/turns.h"
#include "ranks/wait_board.h"
#include "stream/stream.h"

using namespace peerlane;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr double kPromptly = 20;   // seconds; a rank that is held up waits for 60

std::shared_ptr<Ledger> ledger;

// The ranks of a group, each a thread, and a thread that looks at their clocks.
class Ranks {
  public:
    explicit Ranks(uint32_t size) : size_(size), bank_(SharedSignal::create(ledger, WaitBoard::lines(size))) {
        for (uint32_t rank = 0; rank < size; ++rank)
            turns_.push_back(std::make_shared<Turns>(bank_, nullptr, rank, size, WaitBoard::first_of_turns(size)));
    }
    // What each rank does in its turns; returns why the run may not repeat.
    template <class Work>
    uint64_t run(const Work& work) {
        std::vector<std::thread> threads;
        for (uint32_t rank = 0; rank < size_; ++rank)
            threads.emplace_back([&, rank] {
                Turns::join(turns_[rank], 60 * kSecond);
                CHECK(Turns::is_participant());
                work(rank);
                turns_[rank]->leave();
            });
        std::atomic<bool> is_over{false};
        std::thread watcher([&] {
            while (!is_over) {
                for (const auto& each : Turns::of_process()) each->look_at_clock();
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        });
        for (std::thread& each : threads) each.join();
        is_over = true;
        watcher.join();
        CHECK(!Turns::is_on());
        return turns_[0]->why() & 0xFF;
    }
    uint64_t* words() const { return reinterpret_cast<uint64_t*>(&bank_->line(WaitBoard::first_of_turns(size_))); }

  private:
    const uint32_t size_;
    const std::shared_ptr<SharedSignal> bank_;
    std::vector<std::shared_ptr<Turns>> turns_;
};

using Order = std::vector<uint32_t>;   // written without a lock: TSan sees two ranks that run at the same time

Order order_of(const Draws& draws, uint64_t& why) {
    constexpr uint32_t kRanks = 4, kSteps = 50;
    Turns::configure(draws);
    Ranks ranks(kRanks);
    Order order;
    uint32_t arrived = 0;   // at a barrier
    why = ranks.run([&](uint32_t rank) {
        Turns::point();
        for (uint32_t i = 0; i < kSteps; ++i) {
            order.push_back(rank);
            if (i % 17 == 16) {
                const uint32_t whole = (++arrived + kRanks - 1) / kRanks * kRanks;
                Turns::signal();
                while (arrived < whole) Turns::blocked(now_ns() + 60 * kSecond);
            }
            Turns::point();
        }
    });
    CHECK(order.size() == kRanks * kSteps);
    return order;
}

// A rank may lose its core between the step that ends its turns and the draw of the next one.
void who_leaves_slowly_has_its_turn_until_it_has_passed_it_on() {
    constexpr uint64_t kLeaving = 5;
    for (uint64_t seed = 0; seed < 4; ++seed) {
        Turns::configure({seed, false, {}});
        Ranks ranks(2);
        bool is_leaving = false, has_run_meanwhile = false;
        const uint64_t why = ranks.run([&](uint32_t rank) {
            for (int i = 0; i < 20; ++i) {
                Turns::point();
                if (rank == 1) {
                    has_run_meanwhile |= is_leaving;
                } else if (i == 10) {
                    is_leaving = true;
                    std::atomic_ref state(*ranks.words());
                    const uint64_t in = state.exchange(kLeaving);
                    std::this_thread::sleep_for(std::chrono::milliseconds(200));
                    state.store(in);
                    is_leaving = false;
                }
            }
        });
        CHECK(!has_run_meanwhile || why == Turns::stopped);
    }
}

// A machine under load may take a rank for one that sleeps, which the run says: only runs that say nothing must agree.
void same_seed_gives_same_order() {
    int repeated = 0, different = 0;
    for (const Draws& draws : {Draws{1}, Draws{2}, Draws{3, true, {}}, Draws{3, true, {20, 60, 61, 140}}}) {
        uint64_t why;
        Order first;
        do first = order_of(draws, why);
        while (why != Turns::repeats);
        for (int i = 0; i < scaled(5, 50); ++i) {
            const Order again = order_of(draws, why);
            if (why != Turns::repeats) continue;
            CHECK(again == first);
            ++repeated;
        }
        different += order_of({draws.seed + 10, draws.has_priorities, draws.changes}, why) != first;
    }
    CHECK(repeated != 0 && different != 0);
}

void who_polls_lets_others_on() {
    for (uint64_t seed = 0; seed < 10; ++seed)
        for (const bool has_priorities : {false, true}) {
            Turns::configure({seed, has_priorities, {}});
            Ranks ranks(3);
            bool seen[3] = {};   // one after the other: each polls for the one before it
            CHECK(ranks.run([&](uint32_t rank) {
                if (rank != 0)
                    while (!seen[rank - 1]) Turns::point();
                Turns::point();
                seen[rank] = true;
            }) != Turns::took_long);
        }
}

void who_sleeps_gives_up_its_turn() {
    for (uint64_t seed = 0; seed < 4; ++seed) {
        Turns::configure({seed, false, {}});
        Ranks ranks(2);
        std::atomic<bool> is_over{false};
        const uint64_t start = now_ns();
        const uint64_t why = ranks.run([&](uint32_t rank) {
            Turns::point();
            if (rank == 1)
                while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(700));
            for (int i = 0; i < 20; ++i) Turns::point();
            is_over = true;
        });
        CHECK(why == Turns::slept || why == Turns::polled);   // a rank that wakes before it is looked at has a clock that moved
        CHECK(static_cast<double>(now_ns() - start) < kPromptly * kSecond);
    }
}

void who_polls_outside_gives_up_its_turn_and_comes_back() {
    Turns::configure({1, false, {}});
    Ranks ranks(2);
    bool is_back = false;
    const uint64_t start = now_ns();
    const uint64_t why = ranks.run([&](uint32_t rank) {
        Turns::point();
        if (rank == 1) {
            // Time without a core does not count, so that a loaded machine takes longer.
            while (Turns::has_turn() && static_cast<double>(now_ns() - start) < kPromptly * kSecond) std::this_thread::sleep_for(std::chrono::microseconds(500));
            Turns::point();
            is_back = true;
            Turns::signal();
        }
        while (!is_back) Turns::blocked(now_ns() + 60 * kSecond);
        for (int i = 0; i < 20; ++i) Turns::point();
    });
    CHECK(why == Turns::polled || why == Turns::slept);
    CHECK(static_cast<double>(now_ns() - start) < kPromptly * kSecond);
}

void nonsense_in_the_bank_holds_nobody_up(std::mt19937_64& random) {
    Turns::configure({1, true, {5, 9}});
    for (int i = 0; i < scaled(20, 500); ++i) {
        Ranks ranks(2);
        const uint64_t start = now_ns();
        (void)ranks.run([&](uint32_t rank) {
            for (int step = 0; step < 20; ++step) {
                Turns::point();
                uint64_t* const header = ranks.words() + sizeof(SignalLine) / 2 / 8;
                if (rank == 0 && step == 10) std::atomic_ref(header[random() % 8]).store(random() % 3 == 0 ? random() : 3 + random() % 9);
            }
        });
        CHECK(static_cast<double>(now_ns() - start) < kPromptly * kSecond);
    }
}

}  // namespace

NATIVE_TEST(test_turns) {
    std::mt19937_64 random = seeded("test_turns");
    Heap::get().configure({.window_bytes = kTestWindow});
    ledger = new_ledger();
    RUN(same_seed_gives_same_order());
    RUN(who_leaves_slowly_has_its_turn_until_it_has_passed_it_on());
    RUN(who_polls_lets_others_on());
    RUN(who_sleeps_gives_up_its_turn());
    RUN(who_polls_outside_gives_up_its_turn_and_comes_back());
    RUN(nonsense_in_the_bank_holds_nobody_up(random));
    return 0;
}
