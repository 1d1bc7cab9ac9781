// Failing operations in both modes, abort, close, waits that never end, deadlines.
#include "peers.h"
#include "streams.h"

using namespace streams;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr double kPromptly = 20;   // seconds; a loaded machine may stop a process for some
uint32_t device, island;   // they have no route to each other

struct Gate {
    Notify* notify = Notify::local(NotifyKind::binary, device);
    ~Gate() { notify->drop(); }
    void open() const { engine().notify_recorded(*notify); }
};

struct Cells {
    Area near = area(device, 1024), far = area(island, 1024);
    Area gift = area(device, 8192);
    ~Cells() {
        near.close();
        far.close();
    }
    // Refused when it runs: there is no route, and staging is not allowed.
    void fail(Stream& on) const { copy(on, near.address, far.address, 8, true); }
};

// With `stops` everything behind is cancelled until the failure is taken; else only the operation fails.
void failing_in_the_middle(bool stops) {
    Cells cells;
    const StreamPtr one = stream(device, stops), heir = stream(device, true), witness = stream(device, false);
    Gate gate, signalled;
    await(*one, gate.notify);
    write(*one, cells.near.address, 1);
    const uint64_t failing = Record(*one).mark->sequence + 1;
    cells.fail(*one);
    write(*one, cells.near.address + 8, 2);
    notify(*one, signalled.notify);
    free_in_order(*one, cells.gift);
    Mark* mark = engine().record(*one);
    engine().wait(*heir, *mark, 0);
    engine().wait(*witness, *mark, 0);
    write(*heir, cells.near.address + 16, 3);
    write(*witness, cells.near.address + 24, 4);
    gate.open();
    for (const StreamPtr& each : {one, heir, witness}) sync(*each);
    CHECK(cells.near.word(0) == 1 && cells.near.word(1) == (stops ? 0 : 2));
    CHECK(cells.near.word(2) == (stops ? 0 : 3) && cells.near.word(3) == 4);
    CHECK(signalled.notify->is_recorded() == !stops);
    CHECK(!cells.gift.extent->is_live() || cells.gift.extent->id.load() != cells.gift.id);
    CHECK(mark->state.load() == (stops ? Mark::failed : Mark::done));
    const FailurePtr failure = engine().take_failure(*one);
    CHECK(failure && failure->refusal.why == Why::no_route && failure->sequence == failing && failure->stream == one->id);
    for (const StreamPtr& each : {heir, witness}) {
        const FailurePtr inherited = engine().take_failure(*each);
        CHECK(!inherited == !stops);
        if (!stops) continue;
        CHECK(inherited->refusal.why == Why::cancelled && inherited->cause->refusal.why == Why::cancelled);
        CHECK(inherited->cause->cause == failure);
    }
    mark->drop();
    // The failure was reported once, and the streams work again.
    CHECK(!engine().take_failure(*one));
    for (const StreamPtr& each : {one, heir}) {
        write(*each, cells.near.address + 8, 5);
        finish(*each);
        CHECK(cells.near.word(1) == 5);
        cells.near.set(1, 0);
    }
    for (const StreamPtr& each : {one, heir, witness}) close(*each);
}

// What is submitted between the failure and its report is cancelled too.
void stopped_until_it_is_released() {
    Cells cells;
    const StreamPtr one = stream(device);
    cells.fail(*one);
    sync(*one);
    write(*one, cells.near.address, 1);
    sync(*one);
    engine().abort(*one, false);
    write(*one, cells.near.address, 2);
    sync(*one);
    CHECK(cells.near.word(0) == 0 && failed_with(*one, Why::no_route));
    write(*one, cells.near.address, 3);
    finish(*one);
    CHECK(cells.near.word(0) == 3);
    cells.gift.close();
    close(*one);
}

void abort_of_what_is_queued(bool closes) {
    Cells cells;
    const StreamPtr one = stream(device), heir = stream(device, false);
    Gate gate, signalled;
    await(*one, gate.notify);
    for (uint64_t i = 0; i < 200; ++i) write(*one, cells.near.address, i + 1);
    notify(*one, signalled.notify);
    free_in_order(*one, cells.gift);
    batch(*one, {{cells.near.address + 64, cells.near.address + 128, 32}});
    order(*one, *heir);
    write(*heir, cells.near.address + 8, 1);
    engine().abort(*one, closes);
    sync(*one);
    sync(*heir);
    CHECK(cells.near.word(0) == 0 && cells.near.word(1) == 1 && !signalled.notify->is_recorded());
    CHECK(failed_with(*one, Why::cancelled) && failed_with(*heir, Why::cancelled));
    gate.open();
    if (closes) {
        CHECK(one->closed);
        CHECK(refuses(Why::stream_closed, [&] { write(*one, cells.near.address, 1); }));
    } else {
        write(*one, cells.near.address, 7);
        finish(*one);
        CHECK(cells.near.word(0) == 7);
    }
    close(*one);
    close(*heir);
}

// A running copy ends at its next chunk, also when no thread waits for it.
void abort_of_a_running_job() {
    constexpr uint64_t kSize = uint64_t{128} << 20;
    const Area from = area(device, kSize), to = area(device, kSize);
    for (int round = 0; round < 6; ++round) {
        const StreamPtr one = stream(device);
        copy(*one, to.address, from.address, kSize);
        std::thread waiter;
        if (round % 3 == 1) CHECK(engine().synchronize(*one, Deadline::in(0.001), {}) == Outcome::timed_out);
        if (round % 3 == 2) waiter = std::thread([&] { sync(*one); });
        if (round % 3 == 2) std::this_thread::yield();
        engine().abort(*one, round % 2);
        sync(*one);
        if (waiter.joinable()) waiter.join();
        const FailurePtr failure = engine().take_failure(*one);
        CHECK(!failure || failure->refusal.why == Why::cancelled);
        close(*one);
    }
    from.close();
    to.close();
}

void close_with_queued_work() {
    Cells cells;
    const StreamPtr one = stream(device), other = stream(device);
    Gate gate, later;
    // The gate opens: everything runs.
    await(*one, gate.notify);
    write(*one, cells.near.address, 1);
    order(*one, *other);
    write(*other, cells.near.address + 8, 2);
    notify(*stream(device), gate.notify);   // a dropped stream still runs
    close(*other);
    close(*one);
    CHECK(cells.near.word(0) == 1 && cells.near.word(1) == 2 && one->closed && other->closed);
    CHECK(!engine().take_failure(*one) && !engine().take_failure(*other));
    close(*one);
    // The gate never opens: the wait and its followers are cancelled, in bounded time.
    const StreamPtr blocked = stream(device), hanging = stream(device), holder = stream(device);
    await(*blocked, later.notify);
    write(*blocked, cells.near.address, 3);
    order(*blocked, *hanging);
    order(*hanging, *holder);
    write(*hanging, cells.near.address + 8, 3);
    CHECK(seconds([&] { close(*hanging); }) < kPromptly);
    CHECK(cells.near.word(1) == 2 && failed_with(*hanging, Why::cancelled));
    CHECK(!engine().query(*blocked));
    CHECK(engine().close(*blocked, false, {}) == Outcome::reached);
    sync(*blocked);
    CHECK(blocked->closed && failed_with(*blocked, Why::cancelled));
    sync(*holder);
    cells.gift.close();
    close(*holder);
}

// A stream that stands behind a barrier waits for all in front of it.
void close_behind_a_barrier() {
    Cells cells;
    const auto group = std::make_shared<Group>();
    const StreamPtr standard = stream(device, true, group, true), one = stream(device, true, group);
    Gate gate;
    await(*one, gate.notify);
    write(*standard, cells.near.address, 1);
    CHECK(engine().synchronize(*standard, Deadline::in(0.3), {}) == Outcome::timed_out);
    CHECK(seconds([&] { close(*standard); }) < kPromptly);
    CHECK(standard->closed && cells.near.word(0) == 0);
    gate.open();
    close(*one);
    cells.gift.close();
}

void hopeless_waits() {
    Cells cells;
    for (int i = 0; i < 5; ++i) {
        // A stream that waits for itself.
        const StreamPtr self = stream(device);
        Gate mine;
        await(*self, mine.notify);
        notify(*self, mine.notify);
        CHECK(seconds([&] { CHECK(refuses(Why::deadlock, [&] { sync(*self); })); }) < kPromptly);
        // A circle of three, and a stream that waits for them.
        const StreamPtr a = stream(device), b = stream(device), c = stream(device), outer = stream(device);
        Gate ab, bc, ca;
        await(*a, ca.notify);
        notify(*a, ab.notify);
        await(*b, ab.notify);
        notify(*b, bc.notify);
        await(*c, bc.notify);
        notify(*c, ca.notify);
        order(*b, *outer);
        CHECK(seconds([&] { CHECK(refuses(Why::deadlock, [&] { sync(*outer); })); }) < kPromptly);
        // A record submitted meanwhile ends the circle.
        notify(*stream(device), bc.notify);
        for (const StreamPtr& each : {outer, a, b, c}) finish(*each);
        mine.open();
        finish(*self);
        for (const StreamPtr& each : {self, outer, a, b, c}) close(*each);
    }
    cells.gift.close();
}

// A legacy operation waits for a stream that waits for it.
void hopeless_barrier() {
    const auto group = std::make_shared<Group>();
    const StreamPtr standard = stream(device, true, group, true), one = stream(device, true, group);
    Gate gate;
    await(*one, gate.notify);
    notify(*standard, gate.notify);
    CHECK(seconds([&] { CHECK(refuses(Why::deadlock, [&] { sync(*standard); })); }) < kPromptly);
    CHECK(refuses(Why::deadlock, [&] { sync(*one); }));
    gate.open();
    finish(*standard);
    finish(*one);
    close(*standard);
    close(*one);
}

void timeouts() {
    Cells cells;
    const StreamPtr one = stream(device), other = stream(device, false), slow = stream(device);
    Gate never, late;
    await(*slow, never.notify);
    Mark* mark = engine().record(*slow);
    const double took = seconds([&] {
        await(*one, never.notify, kSecond / 20);
        write(*one, cells.near.address, 1);
        engine().wait(*other, *mark, kSecond / 10);
        write(*other, cells.near.address + 8, 2);
        wait_value(*other, cells.near.address + 16, 5, kSecond / 10);
        write(*other, cells.near.address + 24, 3);
        sync(*one);
        sync(*other);
    });
    CHECK(took >= 0.19 && took < kPromptly);
    CHECK(failed_with(*one, Why::wait_timeout) && failed_with(*other, Why::wait_timeout));
    CHECK(cells.near.word(0) == 0 && cells.near.word(1) == 2 && cells.near.word(3) == 3);
    // Satisfied in time: no failure, and the deadline is forgotten.
    await(*one, late.notify, 30 * kSecond);
    wait_value(*one, cells.near.address + 16, 9, 30 * kSecond);
    write(*one, cells.near.address, 4);
    late.open();
    write(*other, cells.near.address + 16, 9);
    finish(*other);
    finish(*one);
    CHECK(cells.near.word(0) == 4);
    never.open();
    finish(*slow);
    mark->drop();
    cells.gift.close();
    for (const StreamPtr& each : {one, other, slow}) close(*each);
}

// Thousands of waits for one record that end at their deadlines leave nothing behind.
void forgotten_waits() {
    const StreamPtr slow = stream(device), one = stream(device, false);
    Gate never;
    await(*slow, never.notify);
    Mark* mark = engine().record(*slow);
    for (int i = 0; i < 300; ++i) engine().wait(*one, *mark, 1000);
    sync(*one);
    CHECK(failed_with(*one, Why::wait_timeout));
    CHECK(peers::comes_true([&] { return one.use_count() <= 2; }));   // here, and the scheduler's; a worker lets go of it soon
    never.open();
    finish(*slow);
    mark->drop();
    close(*slow);
    close(*one);
}

// Closing a device ends what its streams wait for; an observer of the streams sees them end.
void closing_a_device() {
    const uint32_t gone = new_device(false);
    Cells cells;
    const StreamPtr one = stream(gone), idle = stream(gone), heir = stream(device, false);
    Gate gate;
    await(*one, gate.notify);
    write(*one, cells.near.address, 1);
    order(*one, *heir);
    engine().close_device(gone);
    sync(*one);
    sync(*heir);
    CHECK(one->closed && idle->closed && cells.near.word(0) == 0 && failed_with(*heir, Why::cancelled));
    Heap::get().close_device(gone);
    cells.gift.close();
    close(*heir);
}

}  // namespace

NATIVE_TEST(test_stream_failures) {
    auto random = seeded("test_stream_failures");
    open_heap();
    device = new_device();
    island = new_device(false);
    for (int i = 0; i < scaled(1, 20); ++i)
        under_each_schedule(random, [&] {
            RUN(failing_in_the_middle(true));
            RUN(failing_in_the_middle(false));
            RUN(stopped_until_it_is_released());
            RUN(abort_of_what_is_queued(false));
            RUN(abort_of_what_is_queued(true));
            RUN(abort_of_a_running_job());
            RUN(close_with_queued_work());
            RUN(close_behind_a_barrier());
            RUN(hopeless_waits());
            RUN(hopeless_barrier());
            RUN(timeouts());
            RUN(forgotten_waits());
            RUN(closing_a_device());
        });
    CHECK(engine().waiting().empty());
    return 0;
}
