// Completion queues: threads that push and pop, a full queue, and a page that another process overwrites.
#include <algorithm>
#include <thread>
#include <vector>

#include "check.h"
#include "ranks/completions.h"
#include "share/shared_signal.h"

using namespace peerlane;

namespace {

std::optional<uint32_t> next_of(Completions& queue) {
    uint64_t record;
    return queue.pop(record);
}

void order() {
    Completions queue;
    bool wake = true;
    CHECK(queue.is_empty() && !next_of(queue));
    for (uint64_t round = 0; round < 3; ++round) {
        for (uint32_t i = 0; i < Completions::kMost; ++i) {
            CHECK(queue.push(i * 7 % 64, wake) == round * Completions::kMost + i + 1);
            CHECK(!wake);
        }
        CHECK(queue.push(1, wake) == 0 && !wake);
        for (uint32_t i = 0; i < Completions::kMost; ++i) CHECK(next_of(queue) == i * 7 % 64);
        CHECK(queue.is_empty());
    }
    queue.line().word.fetch_or(SignalLine::kWaiter);
    CHECK(queue.push(Completions::kMostNumbers - 1, wake) != 0 && wake);
    CHECK(next_of(queue) == Completions::kMostNumbers - 1);
}

// Each record is popped once.
void pushes_and_pops_of_threads_lose_nothing(uint32_t each) {
    constexpr uint32_t kThreads = 3;
    Completions queue;
    std::vector<std::thread> threads;
    std::vector<std::vector<uint32_t>> taken(2);
    std::atomic<uint32_t> left{kThreads * each};
    for (uint32_t producer = 0; producer < kThreads; ++producer)
        threads.emplace_back([&queue, producer, each] {
            bool wake;
            for (uint32_t i = 0; i < each; ++i)
                while (queue.push(producer << 12 | i % 4096, wake) == 0) std::this_thread::yield();
        });
    for (auto& mine : taken)
        threads.emplace_back([&queue, &mine, &left] {
            while (left.load() != 0)
                if (const auto entry = next_of(queue)) {
                    mine.push_back(*entry);
                    left.fetch_sub(1);
                } else {
                    std::this_thread::yield();
                }
        });
    for (auto& thread : threads) thread.join();
    std::vector<uint32_t> counts(kThreads);
    for (const auto& mine : taken)
        for (const uint32_t entry : mine) ++counts.at(entry >> 12);
    for (const uint32_t count : counts) CHECK(count == each);
}

// A thread that pops only after a push finds a record, also when others overtake it by a round of the queue.
void a_pop_of_what_is_there_finds_it(uint32_t each) {
    constexpr uint32_t kTakers = 3;
    Completions queue;
    std::atomic<int64_t> there{0};
    std::vector<std::thread> threads;
    for (uint32_t taker = 0; taker < kTakers; ++taker)
        threads.emplace_back([&queue, &there, each] {
            for (uint32_t i = 0; i < each; ++i) {
                while (there.fetch_sub(1) <= 0) {
                    there.fetch_add(1);
                    std::this_thread::yield();
                }
                CHECK(next_of(queue));
            }
        });
    bool wake;
    for (uint32_t i = 0; i < kTakers * each; ++i) {
        while (queue.push(i % 64, wake) == 0) std::this_thread::yield();
        there.fetch_add(1);
    }
    for (auto& thread : threads) thread.join();
    CHECK(queue.is_empty());
}

void one_taker_pops_in_order(uint32_t each) {
    Completions queue;
    std::thread producer([&queue, each] {
        bool wake;
        for (uint32_t i = 0; i < each; ++i)
            while (queue.push(i % 65536, wake) == 0) std::this_thread::yield();
    });
    for (uint32_t i = 0; i < each;)
        if (const auto entry = next_of(queue))
            CHECK(*entry == i++ % 65536);
        else
            std::this_thread::yield();
    producer.join();
    CHECK(queue.is_empty());
}

// Whatever bytes lie in the page, a pop ends; at worst it gives a number that was never pushed.
void random_words_in_the_page_do_no_harm(std::mt19937_64& random) {
    for (int round = 0; round < 2000; ++round) {
        Completions queue;
        auto* const words = reinterpret_cast<std::atomic<uint64_t>*>(&queue.line());
        for (int write = 0; write < 64; ++write) {
            const uint64_t value = std::array<uint64_t, 6>{0, 1, UINT64_MAX, random(), random() % 4096, 1ULL << 16}[random() % 6];
            words[random() % (Completions::kLines * sizeof(SignalLine) / 8)] = value;
            words[random() % 32] = value;
        }
        bool wake;
        for (int i = 0; i < 8; ++i) {
            queue.push(3, wake);
            const auto entry = next_of(queue);
            CHECK(!entry || *entry < Completions::kMostNumbers);
        }
    }
}

}  // namespace

NATIVE_TEST(test_completions) {
    auto random = seeded("test_completions");
    RUN(order());
    RUN(pushes_and_pops_of_threads_lose_nothing(static_cast<uint32_t>(scaled(20'000, 1'000'000))));
    RUN(a_pop_of_what_is_there_finds_it(static_cast<uint32_t>(scaled(200'000, 5'000'000))));
    RUN(one_taker_pops_in_order(static_cast<uint32_t>(scaled(100'000, 5'000'000))));
    RUN(random_words_in_the_page_do_no_harm(random));
    return 0;
}
