// Wait sets of event loops: each wait is told once, whoever ends it, and nothing is left of those that were taken out.
#include <poll.h>

#include <set>

#include "stream/wait_set.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;

bool is_readable(const WaitSet& set, int milliseconds) {
    pollfd one{set.fd(), POLLIN, 0};
    return poll(&one, 1, milliseconds) == 1;
}

void help() {   // under seeded no thread runs operations
    while (engine().help_loop()) {
    }
}

void waits_are_reported_once_in_the_order_in_which_they_end() {
    const StreamPtr first = stream(device), second = stream(device);
    Notify* gates[2] = {Notify::local(NotifyKind::fifo, device), Notify::local(NotifyKind::fifo, device)};
    await(*first, gates[0]);
    await(*second, gates[1]);
    Mark* mark = engine().record(*second);
    WaitSet set;
    CHECK(set.add(1, *first) && set.add(2, *second) && set.add(3, *mark) && set.add(4, *first));
    set.remove(4);
    set.remove(5);
    CHECK(set.take().empty() && !is_readable(set, 0));
    engine().notify_recorded(*gates[1]);
    finish(*second);
    CHECK(is_readable(set, 0));
    std::set<uint64_t> over;
    for (const uint64_t token : set.take()) over.insert(token);
    CHECK((over == std::set<uint64_t>{2, 3}));
    CHECK(set.take().empty() && !is_readable(set, 0));
    CHECK(!set.add(6, *second) && !set.add(7, *mark));
    engine().notify_recorded(*gates[0]);
    help();
    CHECK(is_readable(set, 10'000) && set.take().size() == 1 && set.take().empty());
    mark->drop();
    for (Notify* gate : gates) gate->drop();
    close(*first);
    close(*second);
}

void waits_on_streams_in_a_circle_are_hopeless() {
    const StreamPtr first = stream(device), second = stream(device);
    Notify* gate = Notify::local(NotifyKind::fifo, device);
    await(*first, gate);
    order(*first, *second);
    notify(*second, gate);
    WaitSet set;
    CHECK(set.add(1, *second));
    const auto until = Clock::now() + std::chrono::seconds(30);
    auto hopeless = set.take_hopeless();
    for (; hopeless.empty(); hopeless = set.take_hopeless()) {   // the waits are not reached yet
        CHECK(Clock::now() < until);
        help();
    }
    CHECK(hopeless.size() == 1 && hopeless[0].first == 1 && hopeless[0].second.why == Why::deadlock);
    CHECK(set.take_hopeless().empty());
    engine().abort(*first, true);
    engine().abort(*second, true);
    gate->drop();
}

// A set goes while others end its waits.
void sets_that_come_and_go_in_threads(std::mt19937_64& random) {
    constexpr int kThreads = 4, kStreams = 8;
    std::vector<StreamPtr> all;
    for (int i = 0; i < kStreams; ++i) all.push_back(stream(device));
    Notify* gate = Notify::local(NotifyKind::fifo, device);
    std::vector<uint64_t> seeds;
    for (int i = 0; i < kThreads; ++i) seeds.push_back(random());
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            std::mt19937_64 mine{seeds[t]};
            for (int round = 0; round < scaled(150, 3000); ++round) {
                WaitSet set;
                std::set<uint64_t> waits;
                for (uint64_t number = 0; number < 24; ++number) {
                    Stream& one = *all[mine() % kStreams];
                    await(one, gate);
                    if (set.add(number, one)) waits.insert(number);
                    engine().notify_recorded(*gate);
                    if (mine() % 4 != 0) continue;
                    const uint64_t gone = mine() % 24;
                    set.remove(gone);
                    waits.erase(gone);
                    for (const uint64_t token : set.take()) CHECK(waits.erase(token) == 1);
                    set.take_hopeless();
                }
                if (mine() % 2) continue;
                const auto until = Clock::now() + std::chrono::seconds(30);
                while (!waits.empty()) {
                    CHECK(Clock::now() < until);
                    help();
                    is_readable(set, 100);
                    for (const uint64_t token : set.take()) CHECK(waits.erase(token) == 1);
                }
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const StreamPtr& each : all) close(*each);
    gate->drop();
}

}  // namespace

NATIVE_TEST(test_wait_sets) {
    auto random = seeded("test_wait_sets");
    open_heap();
    device = new_device();
    under_each_schedule(random, [&] {
        RUN(waits_are_reported_once_in_the_order_in_which_they_end());
        RUN(waits_on_streams_in_a_circle_are_hopeless());
        RUN(sets_that_come_and_go_in_threads(random));
    });
    return 0;
}
