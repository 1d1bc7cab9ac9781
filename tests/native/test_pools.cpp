// Memory of pools that threads free and use again at once: no two have the same memory, and every byte is counted.
#include "streams.h"
#include "stream/pools.h"

using namespace streams;

namespace {

constexpr uint64_t kSize = 4096;
constexpr int kThreads = 4;

uint32_t device;

void threads_free_and_allocate(uint64_t most_kept) {
    const auto pools = std::make_shared<Pools>();
    const auto pool = std::make_shared<PoolMemory>(pools, device);
    pool->set(PoolMemory::threshold, most_kept);
    std::vector<Area> areas;
    for (int i = 0; i < 2 * kThreads; ++i) {
        areas.push_back(area(device, kSize));
        pool->add(areas.back().id, areas.back().address, kSize);
    }
    CHECK(pool->used() == areas.size() * kSize && pool->kept() == 0 && pool->most_reserved() == pool->used());
    std::atomic<int> taken{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            const StreamPtr one = stream(device);
            FreedBefore before;
            std::array<const Area*, 2> mine{&areas[2 * i], &areas[2 * i + 1]};
            for (int round = 0; round < scaled(300, 3000); ++round)
                for (const Area*& each : mine) {
                    if (each) {
                        write(*one, each->address, each->id);
                        CHECK(pools->free(each->address, *one));
                        CHECK(!pools->free(each->address + 1, *one));
                        each = nullptr;
                    }
                    pools->record(before, one->id);
                    pools->wait(before, one->id);
                    const uint64_t address = pool->take(kSize - kSize / 16, *one);
                    if (address == 0) continue;
                    ++taken;
                    for (const Area& all : areas)
                        if (all.address == address) each = &all;
                    CHECK(each && pool->is_in_use(each->id));
                }
            for (const Area* each : mine)
                if (each) CHECK(pools->free(each->address, *one));
            finish(*one);
            close(*one);
        });
    for (int i = 0; i < scaled(300, 3000); ++i) {
        pools->have_surplus(device);
        for (const auto& [allocation, is_in_use, is_reused] : pools->take_changes()) CHECK(allocation != 0);
    }
    for (std::thread& each : threads) each.join();
    CHECK(taken > 0 && pools->keep_memory());
    CHECK(pool->used() == 0 && pool->kept() == areas.size() * kSize && pool->most_reserved() == areas.size() * kSize);
    for (const Area& each : areas) {
        CHECK(!pools->free(each.address, *stream(device)));
        CHECK(pool->remove(each.id) && !pool->remove(each.id));
        each.close();
    }
    CHECK(!pools->keep_memory() && pool->kept() == 0);
}

void a_stream_that_takes_no_more_leaves_memory_in_use() {
    const auto pools = std::make_shared<Pools>();
    const auto pool = std::make_shared<PoolMemory>(pools, device);
    const Area memory = area(device, kSize);
    pool->add(memory.id, memory.address, kSize);
    const StreamPtr one = stream(device);
    close(*one);
    bool is_refused = false;
    try {
        pools->free(memory.address, *one);
    } catch (const Refusal&) {
        is_refused = true;
    }
    CHECK(is_refused && pool->is_in_use(memory.id) && pool->used() == kSize && pool->kept() == 0);
    memory.close();
}

}  // namespace

NATIVE_TEST(test_pools) {
    auto random = seeded("test_pools");
    open_heap();
    device = new_device();
    under_each_schedule(random, [&] {
        RUN(threads_free_and_allocate(UINT64_MAX));
        RUN(a_stream_that_takes_no_more_leaves_memory_in_use());
    });
    return 0;
}
