// fork with live streams: every call of the child is refused, it may release everything, and the parent goes on.
#include "faults.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;

void the_child_is_refused() {
    const Area memory = area(device, 1 << 20), target = area(device, 1 << 20);
    StreamPtr one = stream(device), busy = stream(device), idle = stream(device);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    await(*one, gate);
    copy(*one, target.address, memory.address, 1 << 20);
    const Record record(*one);
    auto* queue = new CallbackQueue;
    callback(*busy, queue, 1);
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;   // so that other threads hold the locks at any moment
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            const StreamPtr own = stream(device);
            const Area area_of_bytes = area(device, 8 << 10);
            for (uint64_t i = 0; !over; ++i) {
                write(*own, area_of_bytes.address, i);
                copy(*own, area_of_bytes.address + 8, area_of_bytes.address, 4096);
                if (i % 8 == static_cast<uint64_t>(t)) sync(*own);
            }
            finish(*own);
            close(*own);
            area_of_bytes.close();
        });
    for (int i = 0; i < scaled(10, 200); ++i) {
        std::string errors;
        const int status = status_of_child(
            [&] {
                const auto forked = [](const auto& work) { return refuses(Why::forked, work); };
                CHECK(forked([&] { write(*idle, memory.address, 1); }));
                CHECK(forked([&] { engine().submit(*idle, {.kind = OpKind::record}); }));
                CHECK(forked([&] { engine().record(*one); }));
                CHECK(forked([&] { engine().wait(*idle, *record.mark, 0); }));
                CHECK(forked([&] { engine().synchronize(*one, Deadline::in(1), {}); }));
                CHECK(forked([&] { engine().synchronize(*record.mark, Deadline::in(1), {}); }));
                CHECK(forked([&] { engine().query(*one); }));
                CHECK(forked([&] { engine().query(*record.mark); }));
                CHECK(forked([&] { engine().event_fd(*record.mark); }));
                CHECK(forked([&] { engine().drain({}); }));
                CHECK(forked([&] { stream(device); }));
                CHECK(forked([&] { engine().notify_recorded(*gate); }));
                CHECK(forked([&] { engine().reset(*gate); }));
                CHECK(forked([&] { engine().bell(); }));
                CHECK(forked([&] { Notify::local(NotifyKind::binary, device); }));
                CHECK(engine().close(*one, true, {}) == Outcome::reached);
                engine().abort(*busy, true);
                engine().close_device(device);
                engine().take_failure(*one);
                engine().waiting();
                one.reset();
                idle.reset();
                gate->drop();
            },
            &errors);
        if (!exited_with(status, 0)) std::fprintf(stderr, "%s\n", errors.c_str());
        CHECK(exited_with(status, 0));
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    engine().notify_recorded(*gate);
    finish(*one);
    engine().abort(*busy, true);
    for (const StreamPtr& each : {one, busy, idle}) close(*each);
    queue->drop();
    gate->drop();
    memory.close();
    target.close();
}

}  // namespace

NATIVE_TEST(test_stream_fork) {
    auto random = seeded("test_stream_fork");
    open_heap();
    device = new_device();
    under_each_schedule(random, [&] { RUN(the_child_is_refused()); });
    CHECK(engine().waiting().empty());
    return 0;
}
