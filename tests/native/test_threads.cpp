// Allocation, look-up, copies and frees from many threads; TSan sees the most here.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "copy/copy_engine.h"

using namespace peerlane;

NATIVE_TEST(test_threads) {
    auto random = seeded("test_threads");
    Heap& heap = Heap::get();
    heap.configure({.window_bytes = kTestWindow, .cache_bytes = 8 * kGranule});
    const uint32_t device = heap.add_device({.capacity = uint64_t{1} << 34}, nullptr, 0);
    constexpr int kThreads = 8, kSlots = 64, kRounds = 3000;
    std::atomic<uint64_t> addresses[kSlots]{};
    std::atomic<uint64_t> copied{0}, missed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, seed = random()] {
            std::mt19937_64 mine{seed};
            std::vector<std::pair<Extent*, uint64_t>> own;
            char scratch[4096];
            for (int i = 0; i < kRounds; ++i) {
                switch (mine() % 4) {
                    case 0: {
                        const uint64_t size = mine() % 50 ? 4096 + mine() % 60000 : 3 * kGranule;
                        Extent* extent = heap.allocate(device, size, false);
                        own.emplace_back(extent, extent->id.load());
                        addresses[mine() % kSlots].store(heap.address_of(extent));
                        break;
                    }
                    case 1:
                        if (!own.empty()) {
                            std::swap(own[mine() % own.size()], own.back());
                            heap.retire(own.back().first, own.back().second);
                            own.pop_back();
                        }
                        break;
                    case 2: {   // another thread may be freeing it at this moment
                        const uint64_t from = addresses[mine() % kSlots].load();
                        if (from == 0) break;
                        try {
                            copy(reinterpret_cast<uint64_t>(scratch), from, sizeof scratch);
                            ++copied;
                        } catch (const Refusal& refusal) {
                            CHECK(refusal.why == Why::unknown_address || refusal.why == Why::out_of_bounds);
                            ++missed;
                        }
                        break;
                    }
                    default:
                        heap.nearest(addresses[mine() % kSlots].load());
                        heap.free_bytes(device);
                }
            }
            for (auto& [extent, id] : own) heap.retire(extent, id);
        });
    for (auto& thread : threads) thread.join();
    CHECK(copied > 0 && heap.live_allocations(device) == 0);
    CHECK(heap.free_bytes(device) == uint64_t{1} << 34);

    // Large copies from several threads: one uses the team, the others copy alone, and all bytes arrive.
    threads.clear();
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            const uint64_t size = kStreamFrom + 4099;
            Extent* from = heap.allocate(device, size, false);
            Extent* to = heap.allocate(device, size, false);
            fill(heap.address_of(from), 0x1111u * (t + 1), 2, size / 2);
            for (int i = 0; i < 3; ++i) copy(heap.address_of(to), heap.address_of(from), size & ~uint64_t{1});
            CHECK(memcmp(heap.space().shadow(from->offset), heap.space().shadow(to->offset), size & ~uint64_t{1}) == 0);
            heap.retire(from, from->id.load());
            heap.retire(to, to->id.load());
        });
    for (auto& thread : threads) thread.join();
    heap.close_device(device);
    CHECK(heap.cached_bytes() == 0);
    return 0;
}
