// Notifies: their three kinds, within a process and between two that share a page of lines.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "stream/channel_lines.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;

void kinds() {
    const Area memory = area(device, 64);
    const StreamPtr one = stream(device), other = stream(device, false);
    // Binary: consuming takes all records.
    Notify* binary = Notify::local(NotifyKind::binary, device);
    for (int i = 0; i < 3; ++i) notify(*one, binary);
    finish(*one);
    await(*one, binary);
    finish(*one);
    CHECK(!binary->is_recorded() && binary->line.recorded() == 3);
    // Fifo: one record, one wait; two streams share them.
    Notify* fifo = Notify::local(NotifyKind::fifo, device);
    for (int i = 0; i < 4; ++i) notify(*one, fifo);
    for (int i = 0; i < 2; ++i) {
        await(*one, fifo);
        await(*other, fifo);
    }
    finish(*one);
    finish(*other);
    CHECK(!fifo->is_recorded());
    await(*one, fifo);
    await(*other, fifo);
    write(*one, memory.address, 1);
    write(*other, memory.address + 8, 1);
    engine().notify_recorded(*fifo);
    for (const auto start = Clock::now(); memory.peek(0) + memory.peek(1) != 1;) {
        CHECK(Clock::now() - start < std::chrono::seconds(30));
        engine().query(*one);
        engine().synchronize(*other, Deadline::in(0.001), {});
    }
    engine().notify_recorded(*fifo);
    finish(*one);
    finish(*other);
    CHECK(memory.word(0) + memory.word(1) == 2 && !fifo->is_recorded());
    // Strict: a record must be consumed before the next; a second record fails and does not count.
    Notify* strict = Notify::local(NotifyKind::strict, device);
    notify(*other, strict);
    notify(*other, strict);
    sync(*other);
    CHECK(failed_with(*other, Why::notify_doubled) && strict->line.recorded() == 1);
    CHECK(refuses(Why::notify_doubled, [&] { engine().notify_recorded(*strict); }));
    await(*one, strict);
    finish(*one);
    notify(*other, strict);
    finish(*other);
    engine().reset(*strict);
    CHECK(!strict->is_recorded() && strict->line.generation.load() >= 2);
    for (Notify* each : {binary, fifo, strict}) each->drop();
    close(*one);
    close(*other);
    memory.close();
}

// Each record of many threads is consumed once, by one of many streams.
void every_record_is_taken_once() {
    constexpr int kRecorders = 4, kConsumers = 4;
    const int rounds = scaled(500, 20000);
    const Area memory = area(device, 8 * kConsumers);
    Notify* fifo = Notify::local(NotifyKind::fifo, device);
    std::vector<StreamPtr> consumers;
    for (int i = 0; i < kConsumers; ++i) {
        consumers.push_back(stream(device));
        for (int n = 0; n < rounds; ++n) await(*consumers[i], fifo);
        write(*consumers[i], memory.address + 8 * i, 1);
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < kRecorders; ++t)
        threads.emplace_back([&, t] {
            const StreamPtr own = stream(device);
            for (int i = 0; i < rounds; ++i) {
                if (t % 2)
                    notify(*own, fifo);
                else
                    engine().notify_recorded(*fifo);
            }
            finish(*own);
            close(*own);
        });
    for (std::thread& thread : threads) thread.join();
    for (const StreamPtr& each : consumers) finish(*each);
    CHECK(!fifo->is_recorded() && fifo->line.recorded() == uint64_t{kRecorders} * rounds);
    for (const StreamPtr& each : consumers) close(*each);
    fifo->drop();
    memory.close();
}

// A line is used again by the next notify, and begins anew.
void lines_are_used_again() {
    const StreamPtr one = stream(device);
    for (int i = 0; i < 1000; ++i) {
        Notify* fresh = Notify::local(NotifyKind::fifo, device);
        CHECK(!fresh->is_recorded() && fresh->line.recorded() == 0);
        notify(*one, fresh);
        if (i % 2) await(*one, fresh);
        fresh->drop();
    }
    finish(*one);
    close(*one);
}

// The page that two processes share, with a line for each direction; the child inherits it with the parent's doorbell.
struct Shared {
    std::shared_ptr<SignalPage> page = std::make_shared<SignalPage>(4u);
    SignalLine& ping() const { return page->line(0); }   // the child waits for it
    SignalLine& pong() const { return page->line(1); }   // a stream of the parent waits for it
    SignalLine& orders() const { return page->line(3); }
};

// The child has no streams: it spins on its line, records the other and rings.  It sleeps while no test pings it.  `orders`
// ends it.
[[noreturn]] void be_the_other(const Shared& shared, Doorbell& bell) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto* answer = new Notify(shared.page, 1, NotifyKind::fifo);
    bool wake;
    Notify* hello = new Notify(shared.page, 2, NotifyKind::binary);
    hello->record(wake);   // without a ring, as if it died before it: the parent sees the record later
    std::mt19937 random(7);
    constexpr int kSpins = 1'000'000;
    int spun = 0;
    for (uint64_t answered = 0;;) {
        if (shared.orders().recorded() != 0) _exit(0);
        if (shared.ping().recorded() == answered) {
            if (++spun > kSpins) usleep(1000);
            continue;
        }
        spun = 0;
        ++answered;
        for (uint32_t n = random() % 64; n != 0; --n) asm volatile("" ::: "memory");   // record at any moment of the wait
        if (!answer->record(wake)) _exit(3);
        if (wake) bell.ring();
    }
}

void ping_pong(const Shared& shared, const int rounds) {
    auto* ping = new Notify(shared.page, 0, NotifyKind::fifo);
    auto* pong = new Notify(shared.page, 1, NotifyKind::fifo);
    const StreamPtr one = stream(device);
    const auto start = Clock::now();
    for (int i = 0; i < rounds; ++i) {
        notify(*one, ping);
        await(*one, pong);
        if (i % 3 == 0) finish(*one);   // else several waits are pending
    }
    finish(*one);
    std::printf("    %d round trips in %.2f s\n", rounds, std::chrono::duration<double>(Clock::now() - start).count());
    CHECK(!pong->is_recorded());
    close(*one);
    ping->drop();
    pong->drop();
}

// No thread of this process waits: under eager the doorbell alone lets the stream go on.
void woken_by_the_other(const Shared& shared) {
    const Area memory = area(device, 16);
    auto* ping = new Notify(shared.page, 0, NotifyKind::fifo);
    auto* pong = new Notify(shared.page, 1, NotifyKind::fifo);
    const StreamPtr one = stream(device);
    for (uint64_t i = 1; i <= 20; ++i) {
        await(*one, pong);
        write(*one, memory.address, i);
        Record record(*one);
        engine().notify_recorded(*ping);
        const auto from = Clock::now();
        while (record.mark->state.load() == Mark::pending) {
            CHECK(Clock::now() - from < std::chrono::seconds(30));
            std::this_thread::yield();
        }
        CHECK(memory.word(0) == i);
    }
    close(*one);
    ping->drop();
    pong->drop();
    memory.close();
}

// An idle waiter uses almost no processor time.
void idle_waiters() {
    std::vector<StreamPtr> all;
    const Area memory = area(device, 8);
    Notify* never = Notify::local(NotifyKind::binary, device);
    for (int i = 0; i < 200; ++i) {
        all.push_back(stream(device));
        if (i == 0)
            wait_value(*all[i], memory.address, 1);
        else
            await(*all[i], never);
    }
    engine().synchronize(*all[0], Deadline::in(0.2), {});
    timespec before{}, after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    CHECK(engine().synchronize(*all[1], Deadline::in(1.0), {}) == Outcome::timed_out);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double spent = double(after.tv_sec - before.tv_sec) + 1e-9 * double(after.tv_nsec - before.tv_nsec);
    std::printf("    %.4f s of processor time in a second\n", spent);
    CHECK(spent < 0.2);   // with sanitizers, on a busy machine
    for (const StreamPtr& each : all) close(*each);
    never->drop();
    memory.close();
}

// Threads that use a notify for the first time at once get the same one, and one that is made after the farewell is abandoned.
void lines_of_a_channel() {
    constexpr uint32_t kCount = 64, kThreads = 4;
    const uint64_t before = Notify::take_ids(1);
    for (int round = 0; round < scaled(20, 2'000); ++round) {
        ChannelLines lines(NotifyKind::binary, kCount, device, nullptr);
        CHECK(lines.first_id > before && ChannelLines::first_id_of(lines.first_id + kCount - 1) == lines.first_id);
        CHECK(ChannelLines::first_id_of(before) == before && ChannelLines::first_id_of(lines.first_id + kCount) == lines.first_id + kCount);
        std::array<std::array<Notify*, kCount>, kThreads> got{};
        std::vector<std::thread> threads;
        for (auto& each : got)
            threads.emplace_back([&lines, &each] {
                for (uint32_t i = 0; i < kCount; i += 2) each[i] = &lines.at(i);
            });
        if (round % 2 == 0) lines.abandon();
        for (std::thread& each : threads) each.join();
        for (const auto& each : got) CHECK(each == got[0]);
        for (uint32_t i = 0; i < kCount; i += 2) CHECK(got[0][i]->id == lines.first_id + i && got[0][i]->abandoned == (round % 2 == 0));
        CHECK(lines.unconsumed().empty());
        engine().notify_recorded(lines.at(3));
        CHECK(lines.unconsumed() == std::vector<uint32_t>{3} && lines.at(3).abandoned == (round % 2 == 0));
        lines.let_go();
        CHECK(lines.at(3).abandoned && lines.at(5).abandoned);
    }
    const ChannelLines none(NotifyKind::strict, 0, device, nullptr);
    CHECK(none.first_id == 0 && none.unconsumed().empty());
}

void damaged_pages() {
    const SignalPage page(4);
    CHECK(refuses(Why::system_memory, [&] { SignalPage(page.fd(), 5); }));
    CHECK(refuses(Why::system_memory, [&] { SignalPage(-1, 4); }));
    const SignalPage same(page.fd(), 4);
    same.line(3).word.store(42);
    CHECK(page.line(3).word.load() == 42 && same.fd() != page.fd());
}

}  // namespace

NATIVE_TEST(test_notifies) {
    auto random = seeded("test_notifies");
    open_heap();
    device = new_device();
    const Shared shared;
    // The child is forked before any thread starts; it uses the page of signals and the page of the doorbell.
    const StreamPtr first = stream(device);
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        Doorbell* bell = nullptr;
        CHECK(read(ends[0], &bell, sizeof bell) == sizeof bell);   // inherited, so at the same place
        be_the_other(shared, *bell);
    }
    Doorbell* bell = &engine().bell();
    CHECK(write(ends[1], &bell, sizeof bell) == sizeof bell);
    auto* hello = new Notify(shared.page, 2, NotifyKind::binary);
    await(*first, hello);
    finish(*first);
    hello->drop();
    close(*first);
    RUN(damaged_pages());
    RUN(lines_of_a_channel());
    for (int i = 0; i < scaled(1, 5); ++i)
        under_each_schedule(random, [&] {
            RUN(kinds());
            RUN(every_record_is_taken_once());
            RUN(lines_are_used_again());
            if (engine().schedule() == Schedule::eager) RUN(woken_by_the_other(shared));
            RUN(ping_pong(shared, engine().schedule() == Schedule::eager ? scaled(10'000, 1'000'000) : 2'500));
            RUN(idle_waiters());
        });
    shared.orders().word.store(SignalLine::kRecord);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(engine().waiting().empty());
    return 0;
}
