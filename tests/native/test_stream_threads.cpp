// Streams used by many threads at the same time; TSan sees the most here.
#include <filesystem>

#include "peers.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;

template <class Work>
void in_threads(int count, const Work& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) threads.emplace_back([&work, t] { work(t); });
    for (std::thread& thread : threads) thread.join();
}

void eight_threads_on_one_stream() {
    constexpr int kThreads = 8;
    const int rounds = scaled(800, 20000);
    const Area memory = area(device, kThreads * 4096 + 8);
    const StreamPtr one = stream(device);
    in_threads(kThreads, [&](int t) {
        const uint64_t mine = memory.address + 4096 * t;
        for (int i = 1; i <= rounds; ++i) {
            write(*one, mine, static_cast<uint64_t>(i));
            copy(*one, mine + 8, mine, 8);
            if (i % 64 == 0) {
                CHECK(Record(*one).sync() == Outcome::reached);
                CHECK(memory.word(512 * t + 1) == static_cast<uint64_t>(i));
            }
            if (i % 500 == 0) sync(*one);
            engine().query(*one);
        }
    });
    finish(*one);
    for (uint64_t t = 0; t < kThreads; ++t) CHECK(memory.word(512 * t + 1) == static_cast<uint64_t>(rounds));
    CHECK(one->submitted.load() == one->completed.load());
    close(*one);
    memory.close();
}

void many_streams_on_one_thread() {
    constexpr int kStreams = 64;
    const Area memory = area(device, 8 * (kStreams + 1));
    std::vector<StreamPtr> all;
    for (int i = 0; i < kStreams; ++i) all.push_back(stream(device));
    for (int round = 1; round <= scaled(30, 500); ++round) {
        write(*all[0], memory.address, static_cast<uint64_t>(round));
        for (int i = 0; i < kStreams; ++i) {
            if (i != 0) order(*all[i - 1], *all[i]);
            copy(*all[i], memory.address + 8 * (i + 1), memory.address + 8 * i, 8);
        }
        order(*all[kStreams - 1], *all[0]);
        if (round % 7 == 0) finish(*all[kStreams / 2]);
    }
    finish(*all[0]);
    CHECK(memory.word(kStreams) == static_cast<uint64_t>(scaled(30, 500)));
    for (const StreamPtr& each : all) close(*each);
    memory.close();
}

// Submitting, synchronizing, aborting and closing streams that others use: nothing hangs, nothing is lost.
void threads_that_close(std::mt19937_64& random) {
    constexpr int kThreads = 6, kStreams = 5;
    struct Shared {
        StreamPtr stream;
        Area memory;   // one for each stream: streams are not ordered among themselves
    };
    std::array<Shared, kStreams> shared;
    std::vector<Shared> replaced;
    std::mutex mutex;
    const auto fresh = [](bool stops) { return Shared{stream(device, stops), area(device, uint64_t{8} << 20)}; };
    for (Shared& each : shared) each = fresh(random() % 2);
    const auto end = [](const Shared& each) {
        engine().close(*each.stream, true, {});
        CHECK(each.stream->closed && each.stream->submitted.load() == each.stream->completed.load());
        each.memory.close();
    };
    // With the mutex held.  A stream that no thread has any more gives its memory back: the device holds 512 areas.
    const auto replace = [&](Shared& slot, bool stops) {
        std::erase_if(replaced, [&](const Shared& each) {
            const bool unused = each.stream.use_count() == 1;
            if (unused) end(each);
            return unused;
        });
        replaced.push_back(std::exchange(slot, fresh(stops)));
    };
    std::vector<Notify*> notifies;
    for (int i = 0; i < 4; ++i) notifies.push_back(Notify::local(NotifyKind::fifo, device));
    std::vector<uint64_t> seeds;
    for (int i = 0; i < kThreads; ++i) seeds.push_back(random());
    std::atomic<uint64_t> refused{0}, worked{0};
    in_threads(kThreads, [&](int t) {
        std::mt19937_64 mine{seeds[t]};
        const auto any = [&] {
            std::lock_guard lock(mutex);
            return shared[mine() % kStreams];
        };
        for (int i = 0; i < scaled(400, 4000); ++i) {
            const auto [one, memory] = any();
            const StreamPtr other = any().stream;
            try {
                const uint64_t at = memory.address + 4096 * (mine() % 64);
                switch (mine() % 12) {
                    case 0:
                        copy(*one, memory.address + (4 << 20), memory.address, 3 << 20);
                        break;
                    case 1:
                        batch(*one, {{at + (1 << 20), at, 4096}, {at + (2 << 20), at, 100}});
                        break;
                    case 2:
                        order(*one, *other);
                        break;
                    case 3:
                        await(*one, notifies[mine() % 4], 2'000'000);
                        break;
                    case 4:
                        notify(*one, notifies[mine() % 4]);
                        engine().notify_recorded(*notifies[mine() % 4]);
                        break;
                    case 5:
                        if (mine() % 8) break;
                        engine().abort(*one, mine() % 4 == 0);
                        break;
                    case 6: {
                        if (mine() % 8) break;
                        engine().close(*one, mine() % 2, {});
                        std::lock_guard lock(mutex);
                        Shared& slot = shared[mine() % kStreams];
                        engine().abort(*slot.stream, true);
                        replace(slot, mine() % 2);
                        break;
                    }
                    case 7:
                        engine().synchronize(*one, Deadline::in(0.002), {});
                        engine().take_failure(*one);
                        break;
                    case 8: {
                        const Record record(*one);
                        if (mine() % 2) engine().event_fd(*record.mark);
                        record.sync(0.002);
                        break;
                    }
                    case 9: {
                        const Area gift = area(device, 4096);
                        fill(*one, gift.address, 1, 4096);
                        try {
                            free_in_order(*one, gift);
                        } catch (const Refusal&) {
                            gift.close();
                            throw;
                        }
                        break;
                    }
                    case 10:
                        if (mine() % 16 == 0) engine().waiting();
                        engine().query(*one);
                        break;
                    default:
                        fill(*one, at, static_cast<uint8_t>(i), 4096);
                }
                ++worked;
            } catch (const Refusal& refusal) {
                CHECK(refusal.why == Why::stream_closed || refusal.why == Why::deadlock);
                ++refused;
                if (refusal.why != Why::stream_closed) continue;
                const std::lock_guard lock(mutex);   // else half of the streams are closed before long
                for (Shared& slot : shared)
                    if (slot.stream == one) replace(slot, mine() % 2);
            }
        }
    });
    CHECK(worked > refused);
    replaced.insert(replaced.end(), shared.begin(), shared.end());
    for (const Shared& each : replaced) end(each);
    CHECK(engine().waiting().empty());
    for (Notify* each : notifies) each->drop();
}

// Two threads pass a word to and fro through streams and notifies: a lost wake-up hangs.
void ping_pong_between_threads() {
    const int rounds = scaled(1000, 50000);
    const StreamPtr there = stream(device), back = stream(device);
    Notify* to = Notify::local(NotifyKind::fifo, device);
    Notify* fro = Notify::local(NotifyKind::fifo, device);
    in_threads(2, [&](int t) {
        for (int i = 0; i < rounds; ++i) {
            if (t == 0) {
                notify(*there, to);
                await(*there, fro);
                finish(*there);
            } else {
                await(*back, to);
                notify(*back, fro);
                finish(*back);
            }
        }
    });
    CHECK(!to->is_recorded() && !fro->is_recorded());
    to->drop();
    fro->drop();
    close(*there);
    close(*back);
}

// The program is busy and does not wait: the streams go on under eager, or because a thread polls an event.
void queued_work_without_a_waiter_runs(bool polls) {
    const Area memory = area(device, uint64_t{8} << 20);
    const StreamPtr one = stream(device), other = stream(device);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    await(*one, gate);
    copy(*one, memory.address + (4 << 20), memory.address, 4 << 20);
    order(*one, *other);
    write(*other, memory.address, 6);
    Mark* mark = engine().record(*other);
    if (polls) CHECK(engine().event_fd(*mark) >= 0);
    engine().notify_recorded(*gate);
    const auto start = Clock::now();
    while (mark->state.load() == Mark::pending) {
        CHECK(Clock::now() - start < std::chrono::seconds(30));
        std::this_thread::yield();
    }
    CHECK(memory.word(0) == 6);
    mark->drop();
    gate->drop();
    finish(*other);
    close(*one);
    close(*other);
    memory.close();
}

size_t threads_of_process() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

}  // namespace

NATIVE_TEST(test_stream_threads) {
    auto random = seeded("test_stream_threads");
    open_heap();
    device = new_device();
    for (int i = 0; i < scaled(1, 10); ++i)
        under_each_schedule(random, [&] {
            RUN(eight_threads_on_one_stream());
            RUN(many_streams_on_one_thread());
            RUN(ping_pong_between_threads());
            RUN(threads_that_close(random));
            RUN(queued_work_without_a_waiter_runs(true));
            if (engine().schedule() == Schedule::eager) RUN(queued_work_without_a_waiter_runs(false));
        });
    // Workers, the watcher, and a thread of the sanitizer.
    // The kernel may list a thread for a moment after it was joined.
    CHECK(peers::comes_true([] { return threads_of_process() <= std::thread::hardware_concurrency() + 3; }));
    return 0;
}
