// Groups: an operation of the default stream waits for all before it, and all operations after it wait for it.
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;

struct Members {
    std::shared_ptr<Group> group = std::make_shared<Group>();
    StreamPtr standard = stream(device, true, group, true);
    std::vector<StreamPtr> others;

    explicit Members(int count) {
        for (int i = 0; i < count; ++i) others.push_back(stream(device, true, group));
    }
    ~Members() {
        for (const StreamPtr& each : others) close(*each);
        close(*standard);
    }
};

// Normal streams write their own cells and read the common ones; the default stream reads and writes all.  The barrier
// alone must give the result of one operation after the other.
void as_if_one_after_the_other(std::mt19937_64& random) {
    constexpr uint64_t kOthers = 5, kCells = 8, kCell = 3000;
    Members members(kOthers);
    const Area memory = area(device, (kOthers + 1) * kCells * kCell);   // all streams share the last part
    std::vector<char> model(memory.size);
    const auto offset = [&](uint64_t part) { return (part * kCells + random() % kCells) * kCell; };
    const StreamPtr outsider = stream(device);
    for (int i = 0; i < scaled(1500, 20000); ++i) {
        const bool legacy = random() % 6 == 0;
        const uint64_t who = random() % kOthers;
        Stream& on = legacy ? *members.standard : *members.others[who];
        const uint64_t to = offset(legacy ? random() % (kOthers + 1) : who);
        uint64_t from = offset(legacy ? random() % (kOthers + 1) : random() % 2 ? who : kOthers);
        if (from == to) from = kOthers * kCells * kCell;
        switch (random() % 8) {
            case 0:
                fill(on, memory.address + to, static_cast<uint8_t>(i), kCell);
                memset(&model[to], static_cast<uint8_t>(i), kCell);
                break;
            case 1:
                if (to == from) break;
                batch(on, {{memory.address + to, memory.address + from, 100},
                           {memory.address + to + 1000, memory.address + from + 500, 300}});
                memcpy(&model[to], &model[from], 100);
                memcpy(&model[to + 1000], &model[from + 500], 300);
                break;
            case 2:   // between the group and a stream outside it
                order(on, *outsider);
                break;
            case 3:
                if (random() % 8 == 0) sync(on);
                break;
            default:
                copy(on, memory.address + to, memory.address + from, kCell);
                memmove(&model[to], &model[from], kCell);
        }
    }
    for (const StreamPtr& each : members.others) finish(*each);
    finish(*members.standard);
    finish(*outsider);
    CHECK(memcmp(model.data(), memory.host, memory.size) == 0);
    CHECK(members.group->phases.size() == 1 && members.group->phases.front().outstanding == 0);
    close(*outsider);
    memory.close();
}

// Failing and aborted operations pass the barrier too, and cancelling does not wait for it.
void barriers_and_aborts() {
    Members members(2);
    Stream &standard = *members.standard, &one = *members.others[0], &other = *members.others[1];
    const Area memory = area(device, 64);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    await(one, gate);
    write(one, memory.address, 1);
    write(standard, memory.address + 8, 2);
    write(other, memory.address + 16, 3);
    CHECK(!engine().query(standard) && !engine().query(other));
    engine().abort(other, false);
    sync(other);
    CHECK(failed_with(other, Why::cancelled) && memory.word(2) == 0);
    write(other, memory.address + 16, 4);
    engine().abort(one, false);
    finish(standard);
    finish(other);
    CHECK(failed_with(one, Why::cancelled));
    CHECK(memory.word(0) == 0 && memory.word(1) == 2 && memory.word(2) == 4);
    gate->drop();
    memory.close();
}

// Threads of one group: the default stream's counter sees all writes before it.
void threads_of_a_group() {
    constexpr int kThreads = 4;
    Members members(kThreads);
    const Area memory = area(device, 8 * (kThreads + 2));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (int i = 1; i <= scaled(300, 5000); ++i) {
                write(*members.others[t], memory.address + 8 * t, static_cast<uint64_t>(i));
                if (i % 10 == t) copy(*members.standard, memory.address + 8 * kThreads, memory.address + 8 * t, 8);
                if (i % 50 == 0) sync(i % 100 ? *members.standard : *members.others[t]);
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const StreamPtr& each : members.others) finish(*each);
    finish(*members.standard);
    for (uint64_t t = 0; t < kThreads; ++t) CHECK(memory.word(t) == static_cast<uint64_t>(scaled(300, 5000)));
    memory.close();
}

// Many members, many phases: a barrier counts, and does not visit every stream.
void many_members() {
    Members members(2000);
    const Area memory = area(device, 16);
    for (int i = 1; i <= 20; ++i) {
        for (const StreamPtr& each : members.others) copy(*each, memory.address + 8, memory.address, 8);
        write(*members.standard, memory.address, static_cast<uint64_t>(i));
    }
    finish(*members.standard);
    CHECK(memory.word(0) == 20 && memory.word(1) == 19);
    memory.close();
}

}  // namespace

NATIVE_TEST(test_stream_groups) {
    auto random = seeded("test_stream_groups");
    open_heap();
    device = new_device();
    for (int i = 0; i < scaled(1, 20); ++i)
        under_each_schedule(random, [&] {
            RUN(as_if_one_after_the_other(random));
            RUN(barriers_and_aborts());
            RUN(threads_of_a_group());
            if (engine().schedule() == Schedule::eager) RUN(many_members());
        });
    CHECK(engine().waiting().empty());
    return 0;
}
