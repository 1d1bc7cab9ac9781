#include "memory/heap.h"

#include <cstring>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "check.h"
#include "copy/copy_engine.h"

using namespace peerlane;

namespace {

struct Held {
    Extent* extent;
    uint64_t id, address, size;
};

Held allocate(uint32_t device, uint64_t size) {
    Extent* extent = Heap::get().allocate(device, size, false);
    return {extent, extent->id.load(), Heap::get().address_of(extent), size};
}
void release(const Held& held) { Heap::get().retire(held.extent, held.id); }

uint32_t device_of(uint64_t capacity, bool host_access = false) {
    return Heap::get().add_device({.capacity = capacity, .host_access = host_access}, nullptr, 0);
}

void every_size_is_bounded_exactly() {
    Heap& heap = Heap::get();
    const uint32_t device = device_of(uint64_t{1} << 40);
    std::vector<uint64_t> sizes = {1, 255, 256, 257, 4095, 4096, 4097, 5120, 5121, (1 << 20) - 1, 1 << 20,
                                   (1 << 20) + 1, kGranule - 1, kGranule, kGranule + 1, 3 * kGranule, 5 * kGranule + 7};
    for (uint64_t size : sizes) {
        const Held held = allocate(device, size);
        CHECK(held.address % 256 == 0);
        for (uint64_t at : {uint64_t{0}, size / 2, size - 1}) {
            const Range range = heap.resolve("x", held.address + at, size - at);
            CHECK(range.extent == held.extent && range.device == device);
            heap.unpin(range);
        }
        const auto refusal = refused([&] { heap.unpin(heap.resolve("x", held.address, size + 1)); });
        CHECK(refusal && refusal->why == Why::out_of_bounds && refusal->within.size == size &&
              refusal->within.base == held.address && refusal->within.allocation == held.id);
        CHECK(refuses(Why::unknown_address, [&] { heap.unpin(heap.resolve("x", held.address + size, 1)); }) ||
              size % 256 == 0 || size >= kGranule);
        release(held);
        CHECK(refuses(Why::unknown_address, [&] { heap.unpin(heap.resolve("x", held.address, 1)); }));
    }
    CHECK(heap.live_allocations(device) == 0 && heap.free_bytes(device) == uint64_t{1} << 40);
    heap.close_device(device);
}

void random_allocations_never_overlap(std::mt19937_64& random) {
    Heap& heap = Heap::get();
    const uint32_t device = device_of(uint64_t{1} << 36);
    std::vector<Held> live;
    for (int i = 0; i < 6000; ++i) {
        if (live.empty() || random() % 5 < 3) {
            const uint64_t size = 1 + random() % (uint64_t{1} << (random() % 22));
            Held held = allocate(device, size);
            char tag[8];
            memcpy(tag, &held.id, 8);
            if (size >= 16) {
                copy(held.address, reinterpret_cast<uint64_t>(tag), 8);
                copy(held.address + size - 8, reinterpret_cast<uint64_t>(tag), 8);
            }
            live.push_back(held);
        } else {
            std::swap(live[random() % live.size()], live.back());
            const Held held = live.back();
            live.pop_back();
            if (held.size >= 16) {
                uint64_t first, last;
                copy(reinterpret_cast<uint64_t>(&first), held.address, 8);
                copy(reinterpret_cast<uint64_t>(&last), held.address + held.size - 8, 8);
                CHECK(first == held.id && last == held.id);
            }
            release(held);
            release(held);   // the id no longer fits: nothing happens
        }
        CHECK(heap.live_allocations(device) == live.size());
    }
    heap.close_device(device);
    for (const Held& held : live) {
        CHECK(!heap.is_current(held.extent, held.id));
        release(held);
    }
    CHECK(heap.live_allocations(device) == 0);
}

void capacity_is_a_wall() {
    Heap& heap = Heap::get();
    const uint32_t device = device_of(4 * kGranule);
    const Held big = allocate(device, 3 * kGranule);
    CHECK(heap.free_bytes(device) == kGranule);
    CHECK(refuses(Why::out_of_memory, [&] { allocate(device, kGranule + 1); }));
    CHECK(heap.free_bytes(device) == kGranule);   // a refusal charges nothing
    const Held small = allocate(device, 100);
    CHECK(heap.free_bytes(device) == 0);
    CHECK(refuses(Why::out_of_memory, [&] { allocate(device, kGranule); }));
    const Held beside = allocate(device, 100);    // the slab has room
    CHECK(refuses(Why::out_of_memory, [&] { allocate(device, UINT64_MAX - 5); }));
    CHECK(refuses(Why::out_of_memory, [&] { allocate(device, 0); }));
    release(big), release(small), release(beside);
    CHECK(heap.free_bytes(device) == 4 * kGranule);
    heap.close_device(device);
    CHECK(refuses(Why::closed, [&] { allocate(device, 1); }));
}

void the_cache_is_bounded_and_dropped() {
    Heap& heap = Heap::get();
    heap.trim();
    heap.configure({.window_bytes = kTestWindow, .cache_bytes = 4 * kGranule});
    const uint32_t device = device_of(uint64_t{1} << 40);
    const Held first = allocate(device, 2 * kGranule);
    const uint64_t address = first.address;
    release(first);
    CHECK(heap.cached_bytes() == 2 * kGranule && heap.free_bytes(device) == uint64_t{1} << 40);
    const Held again = allocate(device, 2 * kGranule);
    CHECK(again.address == address && again.id != first.id && heap.cached_bytes() == 0);
    release(again);
    for (int i = 0; i < 5; ++i) {
        const Held a = allocate(device, kGranule), b = allocate(device, 3 * kGranule);
        release(a), release(b);
        CHECK(heap.cached_bytes() <= 4 * kGranule);
    }
    const Held huge = allocate(device, 16 * kGranule);
    release(huge);
    CHECK(heap.cached_bytes() <= 4 * kGranule);
    CHECK(heap.trim() > 0 && heap.cached_bytes() == 0);
    const Held kept = allocate(device, kGranule);
    release(kept);
    heap.close_device(device);
    CHECK(heap.cached_bytes() == 0);
}

void poison_shows() {
    Heap& heap = Heap::get();
    heap.configure({.window_bytes = kTestWindow, .poison = true});
    const uint32_t device = device_of(uint64_t{1} << 30);
    const Held held = allocate(device, 1000), neighbour = allocate(device, 1000);
    const auto* bytes = reinterpret_cast<unsigned char*>(heap.space().shadow(held.extent->offset));
    CHECK(bytes[0] == 0xCB && bytes[999] == 0xCB);
    release(held);
    CHECK(bytes[0] == 0xDD && bytes[999] == 0xDD);
    release(neighbour);
    heap.close_device(device);
    heap.configure({.window_bytes = kTestWindow});
}

void blocks_are_sealed() {
    const uint32_t device = device_of(uint64_t{1} << 30);
    const Held held = allocate(device, kGranule);
    const int fd = held.extent->block->fd;
    CHECK(ftruncate(fd, 0) != 0 && ftruncate(fd, 2 * kGranule) != 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    Heap::get().close_device(device);
    CHECK(fcntl(fd, F_GETFD) == -1);
}

void a_pin_keeps_memory_that_was_freed() {
    Heap& heap = Heap::get();
    const uint32_t device = device_of(uint64_t{1} << 30);
    for (uint64_t size : {uint64_t{64}, 2 * kGranule}) {
        const Held held = allocate(device, size);
        const Range range = heap.resolve("x", held.address, size);
        memset(range.host, 7, size);
        release(held);
        CHECK(!heap.is_current(held.extent, held.id));
        CHECK(refuses(Why::unknown_address, [&] { heap.resolve("x", held.address, 1); }));
        CHECK(range.host[size - 1] == 7 && heap.live_allocations(device) == 1);
        const Held other = allocate(device, size);
        CHECK(other.address != held.address);
        heap.unpin(range);
        CHECK(heap.live_allocations(device) == 1);
        release(other);
    }
    heap.close_device(device);
}

void numbers_of_closed_devices_are_used_again() {
    Heap& heap = Heap::get();
    const uint32_t a = device_of(kGranule), b = device_of(kGranule);
    heap.set_route(a, b, true);
    CHECK(heap.route_open(a, b) && heap.route_open(b, a));
    heap.close_device(b);
    CHECK(!heap.route_open(a, b));
    const uint32_t c = device_of(kGranule);
    CHECK(c == b && !heap.route_open(a, c));
    heap.close_device(a), heap.close_device(c);
}

void a_forked_child_is_refused_and_holds_nothing() {
    const uint32_t device = device_of(uint64_t{1} << 30);
    const Held held = allocate(device, kGranule);
    const int fd = held.extent->block->fd;
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = refuses(Why::forked, [&] { allocate(device, 1); }) &&
                             refuses(Why::forked, [&] { copy(held.address, held.address, 1); });
        _exit(refused && fcntl(fd, F_GETFD) == -1 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    release(held);
    Heap::get().close_device(device);
}

}  // namespace

NATIVE_TEST(test_heap) {
    auto random = seeded("test_heap");
    Heap::get().configure({.window_bytes = kTestWindow});
    every_size_is_bounded_exactly();
    random_allocations_never_overlap(random);
    capacity_is_a_wall();
    the_cache_is_bounded_and_dropped();
    poison_shows();
    blocks_are_sealed();
    a_pin_keeps_memory_that_was_freed();
    numbers_of_closed_devices_are_used_again();
    a_forked_child_is_refused_and_holds_nothing();
    return 0;
}
