// Signals for channels: banks of notifies, the processes of a group, notifies that no process will record, and whether
// a process can make progress.
#include <csignal>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "share/process.h"
#include "share/shared_signal.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;
constexpr auto kPulse = std::chrono::milliseconds(100);

std::shared_ptr<Ledger> new_ledger() {
    const LedgerLayout layout{2, 4};
    const int node = memfd_create("ledger", MFD_CLOEXEC);
    CHECK(node >= 0 && ftruncate(node, static_cast<off_t>(layout.file_size())) == 0);
    const uint64_t owner = static_cast<uint32_t>(getpid()) | start_time(getpid()) << 32;
    CHECK(pwrite(node, &owner, 8, static_cast<off_t>(LedgerLayout::kHeader)) == 8);
    return std::make_shared<Ledger>(node, layout, 0);
}

Notify* line_of(const std::shared_ptr<SharedSignal>& bank, uint32_t index, NotifyKind kind = NotifyKind::binary) {
    Notify* const notify = Notify::local(kind, device);
    engine().share(*notify, bank, false, index);
    return notify;
}

// A process that lives until it is killed, for a minute at most.
struct Other {
    pid_t pid = fork();

    Other() {
        if (pid != 0) return;
        alarm(60);
        while (true) pause();
    }
    ~Other() {
        if (pid > 0) finish();
    }
    Other(const Other&) = delete;
    pid_t finish() {
        int status;
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
        return std::exchange(pid, 0);
    }
};

// Makes the callback that a stream reaches next, under any schedule.
void make_call(CallbackQueue& queue, Stream& on) {
    CallbackQueue::Item item;
    for (const auto start = Clock::now(); !queue.take(item, 1'000'000); (void)engine().query(on))
        CHECK(Clock::now() < start + std::chrono::seconds(30));
    CHECK(engine().begin_callback(on, item.token));
    engine().finish_callback(on, item.token, false);
}

void lines_of_a_bank_are_apart(const std::shared_ptr<Ledger>& ledger) {
    constexpr uint32_t kLines = 1024;
    const auto bank = SharedSignal::create(ledger, kLines);
    CHECK(bank->bank() == kLines);
    std::vector<Notify*> lines;
    for (uint32_t i = 0; i < kLines; ++i) lines.push_back(line_of(bank, i));
    for (uint32_t i = 0; i < kLines; i += 2) engine().notify_recorded(*lines[i]);
    for (uint32_t i = 0; i < kLines; ++i) CHECK(lines[i]->is_recorded() == (i % 2 == 0));
    const StreamPtr waits = stream(device);
    for (uint32_t i = 0; i < kLines; i += 2) await(*waits, lines[i]);
    finish(*waits);
    for (uint32_t i = 0; i < kLines; ++i) CHECK(!lines[i]->is_recorded());
    close(*waits);
    for (Notify* const each : lines) each->drop();
}

void banks_are_opened_as_large_as_they_are(const std::shared_ptr<Ledger>& ledger) {
    const auto bank = SharedSignal::create(ledger, 3);
    const auto again = SharedSignal::open(bank->fd(), ledger, 3);
    again->line(2).word.fetch_add(SignalLine::kRecord);
    CHECK(bank->line(2).recorded() == 1);
    CHECK(SharedSignal::open(bank->fd(), ledger, 3) == again);   // opened twice, the process is one member
    for (const uint32_t other : {0u, 2u, 4u, SharedSignal::kMostLines})
        CHECK(refused([&] { SharedSignal::open(bank->fd(), ledger, other); }));
    const int unsealed = memfd_create("bank", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(unsealed >= 0 && ftruncate(unsealed, static_cast<off_t>(bank->bytes())) == 0);
    CHECK(refused([&] { SharedSignal::open(unsealed, ledger, 3); }));   // an unsealed file could be cut while in use
    ::close(unsealed);
}

void a_record_wakes_the_waiters_of_its_line(const std::shared_ptr<Ledger>& ledger) {
    const auto bank = SharedSignal::create(ledger, 2);
    Notify* const mine = line_of(bank, 0);
    Notify* const other = line_of(bank, 1);
    const StreamPtr waits = stream(device), records = stream(device);
    await(*waits, mine, 30'000'000'000);
    notify(*records, other);
    finish(*records);
    CHECK(!engine().query(*waits));
    notify(*records, mine);
    finish(*waits);
    finish(*records);
    for (const StreamPtr& on : {waits, records}) close(*on);
    for (Notify* const each : {mine, other}) each->drop();
}

void members_that_end_are_lost(const std::shared_ptr<Ledger>& ledger) {
    Other leaves, dies;
    const auto membership = SharedSignal::create(ledger, 3);
    Members members(membership);
    members.add(1, leaves.pid, start_time(leaves.pid));
    members.add(2, dies.pid, start_time(dies.pid));
    CHECK(members.lost() == 0);
    membership->line(1).word.fetch_add(SignalLine::kRecord);
    leaves.finish();
    CHECK(members.lost() == 0);
    const pid_t dead = dies.finish();
    CHECK(members.lost() == static_cast<uint64_t>(dead));
    membership->line(2).word.fetch_add(SignalLine::kRecord);   // recorded before its end, and seen late
    CHECK(members.lost() == 0);
}

void a_pid_that_is_another_process_now_is_lost(const std::shared_ptr<Ledger>& ledger) {
    Other lives;
    const auto membership = SharedSignal::create(ledger, 2);
    Members members(membership);
    members.add(1, lives.pid, start_time(lives.pid) + 1);
    CHECK(members.lost() == static_cast<uint64_t>(lives.pid));
}

void waits_of_a_group_end_with_a_member(const std::shared_ptr<Ledger>& ledger) {
    Other dies;
    const auto membership = SharedSignal::create(ledger, 2), bank = SharedSignal::create(ledger, 1);
    const auto members = std::make_shared<Members>(membership);
    members->add(1, dies.pid, start_time(dies.pid));
    bank->belong_to(members, 1);
    Notify* const awaited = line_of(bank, 0);
    const StreamPtr waits = stream(device);
    await(*waits, awaited);
    CHECK(!engine().query(*waits));
    dies.finish();
    sync(*waits);
    CHECK(failed_with(*waits, Why::waits_for_lost));
    engine().notify_recorded(*awaited);   // a record from before counts
    await(*waits, awaited);
    finish(*waits);
    close(*waits);
    awaited->drop();
}

void waits_for_a_member_that_has_left_end(const std::shared_ptr<Ledger>& ledger) {
    Other leaves, stays;
    const auto membership = SharedSignal::create(ledger, 3), bank = SharedSignal::create(ledger, 1);
    const auto members = std::make_shared<Members>(membership);
    members->add(1, leaves.pid, start_time(leaves.pid));
    members->add(2, stays.pid, start_time(stays.pid));
    bank->belong_to(members, 1);
    Notify* const awaited = line_of(bank, 0);
    const StreamPtr waits = stream(device);
    await(*waits, awaited);
    membership->line(2).word.fetch_add(SignalLine::kRecord);   // which records nothing here
    CHECK(bank->lost_to() == 0 && !engine().query(*waits));
    membership->line(1).word.fetch_add(SignalLine::kRecord);
    sync(*waits);
    CHECK(failed_with(*waits, Why::waits_for_lost));
    close(*waits);
    awaited->drop();
}

void waits_for_abandoned_notifies_end() {
    Notify* const is_stopped = Notify::local(NotifyKind::binary, device);
    const StreamPtr waits = stream(device), records = stream(device);
    await(*waits, is_stopped);
    engine().abandon(*is_stopped);
    sync(*waits);
    CHECK(failed_with(*waits, Why::waits_for_lost));
    await(*waits, is_stopped);   // the next wait is given up, too
    sync(*waits);
    CHECK(failed_with(*waits, Why::waits_for_lost));
    engine().notify_recorded(*is_stopped);
    await(*waits, is_stopped);
    finish(*waits);
    // A queued operation will record it.
    CallbackQueue* const queue = new CallbackQueue;
    callback(*records, queue, 1);
    notify(*records, is_stopped);
    await(*waits, is_stopped);
    std::this_thread::sleep_for(3 * kPulse);   // the watcher looks at it meanwhile
    make_call(*queue, *records);
    finish(*records);
    finish(*waits);
    for (const StreamPtr& on : {waits, records}) close(*on);
    is_stopped->drop();
    queue->drop();
}

// A thread that waits for a stream as a program does.
struct Waiter {
    std::thread thread;
    explicit Waiter(const StreamPtr& on, double seconds = kPatience)
        : thread([on, seconds] { (void)engine().synchronize(*on, Deadline::in(seconds), {}); }) {}
    ~Waiter() { thread.join(); }
};

NoProgress until_no_progress() {
    for (const auto start = Clock::now();; std::this_thread::yield()) {
        NoProgress verdict = engine().no_progress(false);
        if (verdict.token != 0) return verdict;
        CHECK(Clock::now() < start + std::chrono::seconds(30));
    }
}

void no_progress_is_seen_and_ended(const std::shared_ptr<Ledger>& ledger) {
    const auto bank = SharedSignal::create(ledger, 2);
    Notify* const first = line_of(bank, 0);
    Notify* const second = line_of(bank, 1);
    const StreamPtr waits = stream(device), behind = stream(device), another = stream(device);
    CHECK(engine().no_progress(false).token == 0);   // no thread waits
    await(*waits, first);
    order(*waits, *behind);
    await(*another, second);
    {
        const Waiter waiter(behind);
        const NoProgress verdict = until_no_progress();
        CHECK(verdict.hosts.size() == 1 && verdict.hosts[0].stream == behind->id && verdict.parked.size() == 3);
        for (const auto& parked : verdict.parked) {
            CHECK(parked.what == (parked.stream == waits->id ? first->id : parked.stream == behind->id ? waits->id : second->id));
            CHECK(parked.is_local == (parked.park == Park::mark));
        }
        CHECK(engine().no_progress(false).token == verdict.token);   // the state is the same
        engine().notify_recorded(*second);
        finish(*another);
        CHECK(!engine().end_waits(verdict.token, 1, false));
        const NoProgress later = until_no_progress();
        CHECK(later.token != verdict.token && !engine().end_waits(later.token + 2, 1, false));
        CHECK(engine().end_waits(later.token, 17, false));
    }
    const FailurePtr failure = engine().take_failure(*waits);
    CHECK(failure && failure->refusal.why == Why::no_progress && failure->refusal.occasion == 17);
    CHECK(failed_with(*behind, Why::cancelled));
    finish(*another);
    for (const StreamPtr& on : {waits, behind, another}) close(*on);
    for (Notify* const each : {first, second}) each->drop();
}

void waits_without_progress_are_refused_and_the_streams_stay() {
    Notify* const missing = Notify::local(NotifyKind::binary, device);
    const StreamPtr waits = stream(device);
    await(*waits, missing);
    {
        std::atomic<bool> is_reported{false};
        std::thread host([&] { is_reported = refuses(Why::no_progress, [&] { engine().synchronize(*waits, {}, {}); }); });
        const NoProgress verdict = until_no_progress();
        CHECK(verdict.hosts.size() == 1 && verdict.parked.size() == 1 && verdict.parked[0].is_local);
        CHECK(!engine().refuse_waits(verdict.token + 2, 5) && engine().refuse_waits(verdict.token, 5));
        host.join();
        CHECK(is_reported && !engine().query(*waits));
    }
    {
        const Waiter waiter(waits);
        until_no_progress();   // its deadline is a safety net
        engine().notify_recorded(*missing);
    }
    finish(*waits);
    close(*waits);
    missing->drop();
}

// Each of these can go on, or an unknown process may let it go on.
void what_may_go_on_makes_progress(const std::shared_ptr<Ledger>& ledger) {
    const auto bank = SharedSignal::create(ledger, 1), shared = SharedSignal::create(ledger);
    Notify* const between = line_of(bank, 0);
    Notify* const exported = line_of(shared, 0);
    Notify* const promised = Notify::local(NotifyKind::binary, device);
    engine().promise(*promised);
    const Area word = area(device, 8);
    CallbackQueue* const queue = new CallbackQueue;
    const StreamPtr waits = stream(device), other = stream(device);
    await(*waits, between);
    {
        const Waiter waiter(waits);
        until_no_progress();
        const auto goes_on = [&](const std::function<void()>& begin, const std::function<void()>& end) {
            begin();
            CHECK(engine().no_progress(false).token == 0);
            end();
            finish(*other);
            until_no_progress();
        };
        goes_on([&] { await(*other, exported); }, [&] { engine().notify_recorded(*exported); });
        goes_on([&] { await(*other, promised); }, [&] { engine().notify_recorded(*promised); });
        const auto write_word = [&](uint64_t value) { std::atomic_ref(*reinterpret_cast<uint64_t*>(word.host)).store(value); };
        wait_value(*other, word.address, 1);
        until_no_progress();   // nobody else can write the word
        write_word(1);
        finish(*other);
        word.extent->block->is_read_elsewhere = true;
        goes_on([&] { wait_value(*other, word.address, 2); }, [&] { write_word(2); });
        word.extent->block->is_read_elsewhere = false;   // the next schedule may get the same block
        goes_on([&] { callback(*other, queue, 1); }, [&] { make_call(*queue, *other); });
        Notify* const soon = Notify::local(NotifyKind::binary, device);
        await(*other, soon, 4'000'000'000);   // ends by itself
        CHECK(engine().no_progress(false).token == 0);
        sync(*other);
        CHECK(failed_with(*other, Why::wait_timeout));
        soon->drop();
        engine().notify_recorded(*between);
    }
    finish(*waits);
    {
        await(*waits, between);
        const Waiter waiter(waits, 4.0);   // this one ends by itself, too
        for (const auto start = Clock::now(); Clock::now() < start + 3 * kPulse;) CHECK(engine().no_progress(false).token == 0);
    }
    {
        const Waiter waiter(waits, Deadline::kNetSeconds - 1);   // its program goes on after the deadline
        for (const auto start = Clock::now(); Clock::now() < start + 3 * kPulse;) CHECK(engine().no_progress(false).token == 0);
        engine().notify_recorded(*between);
    }
    finish(*waits);
    for (const StreamPtr& on : {waits, other}) close(*on);
    for (Notify* const each : {between, exported, promised}) each->drop();
    word.close();
    queue->drop();
}

// Records race with looks for progress: only its record ends a wait.
void records_race_with_looks(const std::shared_ptr<Ledger>& ledger) {
    const auto bank = SharedSignal::create(ledger, 1);
    Notify* const line = line_of(bank, 0, NotifyKind::fifo);
    const StreamPtr waits = stream(device);
    const int rounds = scaled(2000, 200'000);
    std::atomic<bool> ended{false};
    std::thread looks([&] {
        while (!ended) (void)engine().no_progress(true);
    });
    std::thread records([&] {
        for (int round = 0; round < rounds; ++round) engine().notify_recorded(*line);
    });
    for (int round = 0; round < rounds; ++round) await(*waits, line);
    finish(*waits);
    ended = true;
    looks.join();
    records.join();
    close(*waits);
    line->drop();
}

}  // namespace

NATIVE_TEST(test_ranks) {
    open_heap();
    device = new_device();
    auto random = seeded("test_ranks");
    const std::shared_ptr<Ledger> ledger = new_ledger();
    engine().use_bell(ledger);
    RUN(banks_are_opened_as_large_as_they_are(ledger));
    RUN(members_that_end_are_lost(ledger));
    RUN(a_pid_that_is_another_process_now_is_lost(ledger));
    under_each_schedule(random, [&] {
        RUN(lines_of_a_bank_are_apart(ledger));
        RUN(a_record_wakes_the_waiters_of_its_line(ledger));
        RUN(waits_of_a_group_end_with_a_member(ledger));
        RUN(waits_for_a_member_that_has_left_end(ledger));
        RUN(waits_for_abandoned_notifies_end());
        RUN(no_progress_is_seen_and_ended(ledger));
        RUN(waits_without_progress_are_refused_and_the_streams_stay());
        RUN(what_may_go_on_makes_progress(ledger));
        RUN(records_race_with_looks(ledger));
    });
    return 0;
}
