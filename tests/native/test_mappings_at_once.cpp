// Memory that other threads use, fork beside or share while it moves, ends, or cannot be unmapped.
#include <cstddef>
#include <cstring>
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <thread>
#include <vector>

#include "faults.h"
#include "heap.h"

using namespace peerlane;

namespace {

// Neither a pin nor a look may take a move for an end.
void what_moves_is_alive(uint32_t device, bool looks, uint64_t size, int rounds) {
    Heap& heap = Heap::get();
    for (int round = 0; round < rounds; ++round) {
        Extent* const extent = heap.allocate(device, size, false);
        const uint64_t id = extent->id.load();
        std::atomic<bool> stop{false};
        std::atomic<int> started{0};
        const auto use = [&] {
            for (++started; !stop;) {
                if (looks) {
                    CHECK(heap.is_current(extent, id));
                } else {
                    CHECK(heap.pin(extent));
                    heap.unpin(extent);
                    std::this_thread::yield();
                }
            }
        };
        std::thread one(use), other(use);
        while (started != 2) std::this_thread::yield();
        CHECK(heap.pin(extent));
        uint64_t within;
        Block* block = nullptr;
        while (!block)
            if (const auto refusal = refused([&] { block = heap.share(extent, within); })) CHECK(refusal->why == Why::in_use);
        heap.unpin(extent);
        stop = true;
        one.join();
        other.join();
        drop(block);
        heap.retire(extent, id);
    }
}

}  // namespace

int main() {
    Heap& heap = Heap::get();
    heap.configure({.window_bytes = kTestWindow, .cache_bytes = 0});
    const uint32_t device = heap.add_device({.capacity = uint64_t{1} << 40}, nullptr, 0);
    RUN(what_moves_is_alive(device, true, uint64_t{1} << 20, 100));
    RUN(what_moves_is_alive(device, false, 256, 1000));
    return 0;
}
