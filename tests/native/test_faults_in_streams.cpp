// Wild host pointers in queued operations: the operation fails; the process and the stream live.
#include "faults.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;

// As large as any operation here.
uint64_t wild_address() {
    static void* mapping = mmap(nullptr, 8 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return reinterpret_cast<uint64_t>(mapping);
}

void in_the_middle(bool stops, uint64_t size) {
    const Area memory = area(device, size + 64);
    const uint64_t wild = wild_address();
    const StreamPtr one = stream(device, stops), heir = stream(device);
    Notify* signal = Notify::local(NotifyKind::binary, device);
    const Area gift = area(device, 4096);
    write(*one, memory.address + size, 1);
    copy(*one, memory.address, wild, size);
    write(*one, memory.address + size + 8, 2);
    notify(*one, signal);
    free_in_order(*one, gift);
    order(*one, *heir);
    write(*heir, memory.address + size + 16, 3);
    sync(*one);
    sync(*heir);
    const uint64_t at = size / 8;
    CHECK(memory.word(at) == 1 && memory.word(at + 1) == (stops ? 0 : 2) && memory.word(at + 2) == (stops ? 0 : 3));
    CHECK(signal->is_recorded() == !stops && !(gift.extent->is_live() && gift.extent->id.load() == gift.id));
    const FailurePtr failure = engine().take_failure(*one);
    CHECK(failure && failure->refusal.why == Why::host_fault && failure->sequence == 2);
    CHECK(failure->refusal.fault_address - wild < size);
    CHECK(failed_with(*heir, Why::cancelled) == stops);
    // The other direction, batches, fills and rectangles.
    copy(*one, wild, memory.address, size);
    sync(*one);
    CHECK(failed_with(*one, Why::host_fault));
    batch(*one, {{memory.address, memory.address + 32, 8}, {wild, memory.address, 8}});
    sync(*one);
    CHECK(failed_with(*one, Why::host_fault));
    fill(*one, wild, 1, size);
    sync(*one);
    CHECK(failed_with(*one, Why::host_fault));
    copy_2d(*one, wild, 64, memory.address, 64, 8, size / 64);
    sync(*one);
    CHECK(failed_with(*one, Why::host_fault));
    const Reduction& sums = reduction_of(Element::int32, Combine::sum);
    for (const uint64_t count : {uint64_t{2}, size / 4})
        for (const auto& [to, from] : {std::pair{memory.address, wild}, std::pair{wild, memory.address}}) {
            streams::reduce(*one, to, from, count, sums);
            sync(*one);
            CHECK(failed_with(*one, Why::host_fault));
            streams::reduce(*one, memory.address, memory.address, size / 4, sums);   // the failed reduction holds no turn
            finish(*one);
        }
    write(*one, memory.address, 9);
    finish(*one);
    CHECK(memory.word(0) == 9);
    signal->drop();
    close(*one);
    close(*heir);
    memory.close();
}

// Many streams fault at the same time, in workers and in waiting threads.
void all_at_once() {
    const Area memory = area(device, 4 << 20);
    const uint64_t wild = wild_address();
    const Reduction& sums = reduction_of(Element::int32, Combine::sum);
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t)
        threads.emplace_back([&, t] {
            const StreamPtr one = stream(device, t % 2);
            for (int i = 0; i < scaled(60, 2000); ++i) {
                copy(*one, memory.address + 4096 * t, wild, i % 3 ? 100 : 3 << 20);
                sync(*one);
                CHECK(failed_with(*one, Why::host_fault));
                streams::reduce(*one, memory.address, wild, i % 3 ? 8 : (3 << 20) / 4, sums);
                sync(*one);
                CHECK(failed_with(*one, Why::host_fault));
            }
            close(*one);
        });
    for (std::thread& thread : threads) thread.join();
    memory.close();
}

}  // namespace

NATIVE_TEST(test_faults_in_streams) {
    auto random = seeded("test_faults_in_streams");
    open_heap();
    device = new_device();
    under_each_schedule(random, [&] {
        for (const uint64_t size : {uint64_t{512}, uint64_t{100} << 10, uint64_t{5} << 20}) {
            RUN(in_the_middle(true, size));
            RUN(in_the_middle(false, size));
        }
        RUN(all_at_once());
    });
    CHECK(engine().waiting().empty());
    return 0;
}
