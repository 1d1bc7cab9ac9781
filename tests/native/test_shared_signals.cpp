// Signals that processes share: each record wakes the waiter; a wait is given up only when the recorders have died.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "faults.h"
#include "ledgers.h"
#include "share/process.h"
#include "share/shared_signal.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;
int node;   // the node file's descriptor

// Records as another process does that has not joined.
void record_elsewhere(SharedSignal& event, uint64_t number) {
    SignalLine& line = event.record_line(number);
    if (line.word.exchange(number * SignalLine::kRecord | SignalLine::kWaiter) & SignalLine::kWaiter) event.ring();
}

void join_as(SharedSignal& signal, pid_t pid, uint64_t start) {
    SignalPage page(signal.fd(), 63);
    const uint64_t in_node = static_cast<uint32_t>(pid) | start << 32;
    CHECK(pwrite(node, &in_node, 8, static_cast<off_t>(LedgerLayout::kHeader + 3 * kLedgerLayout.stride())) == 8);
    reinterpret_cast<SignalMember*>(&page.line(1))[7].owner.store(SignalMember::owner_of(pid, 3, start));
}

void join_as_dead(SharedSignal& signal) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        ::close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    join_as(signal, child, start_time(child));
    ::close(ends[0]);
    ::close(ends[1]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && exited_with(status, 0));
}

// A ring is for the process: it wakes all its waits.
void each_record_wakes_its_own(const std::shared_ptr<Ledger>& ledger) {
    constexpr uint64_t kWaits = 40;
    const auto event = SharedSignal::create(ledger);
    std::vector<StreamPtr> waiting;
    for (uint64_t number = 1; number <= kWaits; ++number) {
        waiting.push_back(stream(device));
        Notify* const record = Notify::record_of(event, number, device);
        await(*waiting.back(), record);
        record->drop();
    }
    const double span = seconds([&] {
        for (uint64_t number = 1; number <= kWaits; ++number) {
            record_elsewhere(*event, number);
            finish(*waiting[number - 1]);
        }
    });
    std::printf("    %.3f s\n", span);
    CHECK(span < kWaits / 2.0);   // a look once a second would take as many seconds as waits
    for (const StreamPtr& on : waiting) close(*on);
}

// The other process is dead, but this process will record the notify.
void a_wait_for_a_record_of_this_process_is_not_lost(const std::shared_ptr<Ledger>& ledger) {
    const auto shared = SharedSignal::create(ledger), lone = SharedSignal::create(ledger);
    Notify* const mine = Notify::local(NotifyKind::binary, device);
    Notify* const theirs = Notify::local(NotifyKind::binary, device);
    Notify* const again = Notify::local(NotifyKind::binary, device);
    CallbackQueue* const queue = new CallbackQueue;
    engine().share(*mine, shared, true);
    engine().share(*theirs, lone, true);
    engine().share(*again, lone, true);
    const StreamPtr waits = stream(device), records = stream(device), in_vain = stream(device);
    callback(*records, queue, 1);
    notify(*records, mine);
    await(*waits, mine);
    join_as_dead(*shared);
    join_as_dead(*lone);
    for (Notify* const lost : {theirs, again}) {   // twice: in between the watcher looked at all lines
        await(*in_vain, lost);
        sync(*in_vain);
        CHECK(failed_with(*in_vain, Why::waits_for_lost));
    }
    CallbackQueue::Item item;
    CHECK(queue->take(item, 30'000'000'000) && engine().begin_callback(*records, item.token));
    engine().finish_callback(*records, item.token, false);
    item = {};
    finish(*records);
    finish(*waits);
    for (const StreamPtr& on : {waits, records, in_vain}) close(*on);
    for (Notify* const over : {mine, theirs, again}) over->drop();
    queue->drop();
}

// The process recorded and ended, and no thread has looked yet.
void a_record_of_a_dead_process_ends_a_closing_stream_s_wait(const std::shared_ptr<Ledger>& ledger) {
    const auto shared = SharedSignal::create(ledger);
    Notify* const theirs = Notify::local(NotifyKind::binary, device);
    engine().share(*theirs, shared, true);
    const StreamPtr waits = stream(device);
    await(*waits, theirs);
    shared->line().word.fetch_add(SignalLine::kRecord);
    join_as_dead(*shared);
    close(*waits);
    CHECK(!engine().take_failure(*waits));
    theirs->drop();
}

[[maybe_unused]] void waits_go_on_when_the_file_is_cut() {
    const StreamPtr waits = stream(device), times_out = stream(device);
    Notify* const local = Notify::local(NotifyKind::binary, device);
    await(*waits, local);
    CHECK(ftruncate(node, 0) == 0);
    for (int i = 0; i < 3; ++i) {
        await(*times_out, local, 1'000'000);
        sync(*times_out);
        CHECK(failed_with(*times_out, Why::wait_timeout));
    }
    engine().use_bell(new_ledger(&node));
    CHECK(ftruncate(node, 0) == 0);
    engine().use_bell(new_ledger(&node));
    engine().notify_recorded(*local);
    finish(*waits);
    local->drop();
    close(*waits);
    close(*times_out);
}

void a_process_that_cannot_be_looked_at_lives(const std::shared_ptr<Ledger>& ledger) {
    const auto shared = SharedSignal::create(ledger);
    CHECK(shared->lost_to() == 0);
    join_as(*shared, getppid(), start_time(getppid()));
    CHECK(shared->lost_to() == 0);
    const pid_t other = getppid();
    CHECK(exited_with(status_of_child([&] {   // in a child, because a lowered limit stays
        const rlimit none{3, 3};
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        CHECK(start_time(other) == kUnknownStart && shared->lost_to() == 0);
    }), 0));
}

}  // namespace

NATIVE_TEST(test_shared_signals) {
    open_heap();
    device = new_device();
    auto random = seeded("test_shared_signals");
    const std::shared_ptr<Ledger> ledger = new_ledger(&node);
    engine().use_bell(ledger);
    under_each_schedule(random, [&] {
        RUN(each_record_wakes_its_own(ledger));
        RUN(a_wait_for_a_record_of_this_process_is_not_lost(ledger));
        RUN(a_record_of_a_dead_process_ends_a_closing_stream_s_wait(ledger));
    });
#ifndef __SANITIZE_THREAD__   // TSan cannot leave a signal handler by a jump
    RUN(waits_go_on_when_the_file_is_cut());
#endif
    RUN(a_process_that_cannot_be_looked_at_lives(ledger));
    return 0;
}
