// Wild host pointers in every operation.  Not under TSan, which cannot leave a signal handler by a jump.
#include <thread>

#include "check.h"
#include "copy/copy_engine.h"
#include "memory/fault_guard.h"

using namespace peerlane;

// The sanitizer's memcpy would report the access that the guard catches.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() { return "replace_intrin=0"; }

int main() {
    Heap::get().configure({.window_bytes = kTestWindow});
    const uint32_t device = Heap::get().add_device({.capacity = uint64_t{1} << 30}, nullptr, 0);
    const uint64_t size = 4 * kTeamFrom;
    const uint64_t good = Heap::get().address_of(Heap::get().allocate(device, size, false));
    const Reduction& sums = reduction_of(Element::int32, Combine::sum);
    for (uint64_t wild : {uint64_t{0}, uint64_t{0x1000}, uint64_t{0xdead} << 48}) {
        for (uint64_t n : {uint64_t{8}, size}) {
            const auto as_source = refused([&] { copy(good, wild, n); });
            CHECK(as_source && as_source->why == Why::host_fault && as_source->role[0] == 's');
            const auto as_target = refused([&] { copy(wild, good, n); });
            CHECK(as_target && as_target->why == Why::host_fault && as_target->role[0] == 'd');
            CHECK(refuses(Why::host_fault, [&] { reduce(good, wild, n / 4, sums); }));
            CHECK(refuses(Why::host_fault, [&] { reduce(wild, good, n / 4, sums); }));
            // After the failed reductions a reduction of another thread gets its turn.
            std::thread([&] { reduce(good, good, size / 4, sums); }).join();
        }
        CHECK(refuses(Why::host_fault, [&] { fill(wild, 1, 1, 100); }));
        CHECK(refuses(Why::host_fault, [&] { copy_2d(good, 10, wild, 20, 10, 10); }));
    }
    CHECK(refuses(Why::overflow, [&] { copy(good, UINT64_MAX - 4, 8); }));
    CHECK(active_guard == nullptr);
    return 0;
}
