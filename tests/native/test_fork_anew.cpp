// fork before first use: the child works on its own, whatever threads and freed blocks its parent has.
#include "faults.h"
#include "stream/fork.h"
#include "streams.h"

using namespace streams;

namespace {

void works(uint32_t device) {
    const Area from = area(device, 12 << 20), to = area(device, 12 << 20), small = area(device, 64);
    for (uint64_t i = 0; i < from.size / 8; ++i) from.set(i, i * 3);
    const StreamPtr one = stream(device), other = stream(device);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    await(*other, gate);
    copy(*other, to.address, from.address, from.size);
    write(*one, small.address, 17);
    engine().notify_recorded(*gate);
    finish(*one);
    finish(*other);
    CHECK(memcmp(from.host, to.host, from.size) == 0 && small.word(0) == 17);
    for (const StreamPtr& each : {one, other}) close(*each);
    gate->drop();
    for (const Area& each : {from, to, small}) each.close();
}

void the_child_works(uint32_t device) {
    Heap& heap = Heap::get();
    works(device);
    CHECK(exited_with(status_of_child([&] { CHECK(!begin_anew() && heap.is_forked()); }), 0));   // it is in use
    heap.end_use();
    Notify* kept = Notify::local(NotifyKind::fifo, device);
    heap.end_use();
    CHECK(exited_with(status_of_child([&] { CHECK(!begin_anew()); }), 0));
    kept->drop();
    const StreamPtr open = stream(device);
    heap.end_use();
    CHECK(exited_with(status_of_child([&] { CHECK(!begin_anew()); }), 0));
    close(*open);
    heap.end_use();
    const uint64_t cached = heap.cached_bytes();
    CHECK(cached != 0);
    for (int i = 0; i < scaled(5, 100); ++i) {
        std::string errors;
        const int status = status_of_child(
            [&] {
                CHECK(refuses(Why::forked, [&] { heap.allocate(device, 8, false); }));   // until begin_anew was called
                CHECK(begin_anew() && !heap.is_forked() && heap.cached_bytes() == 0);
                works(device);
                works(device);
                CHECK(exited_with(status_of_child([&] { CHECK(!begin_anew()); }), 0));
            },
            &errors);
        if (!exited_with(status, 0)) std::fprintf(stderr, "%s\n", errors.c_str());
        CHECK(exited_with(status, 0));
    }
    CHECK(heap.cached_bytes() == cached && !heap.is_forked());
    works(device);
}

}  // namespace

NATIVE_TEST(test_fork_anew) {
    auto random = seeded("test_fork_anew");
    CHECK(exited_with(status_of_child([] { CHECK(begin_anew() && !Heap::is_created()); }), 0));
    open_heap();
    const uint32_t device = new_device();
    under_each_schedule(random, [&] { RUN(the_child_works(device)); });
    return 0;
}
