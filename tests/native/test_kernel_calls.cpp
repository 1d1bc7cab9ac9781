// Kernels for the processor that touch the same pages of device memory at the same time.
#include "memory/kernel_call.h"

#include "streams.h"

using namespace streams;

namespace {

struct Call {
    Area area;
    std::atomic<int> step{0};

    void wait_for(int reached) const {
        while (step.load() < reached) std::this_thread::yield();
    }
    uint64_t first_word() const { return *reinterpret_cast<volatile uint64_t*>(area.address); }
};

uint32_t return_first(void* arguments) {
    auto& call = *static_cast<Call*>(arguments);
    CHECK(call.first_word() == 5);
    call.step = 1;
    call.wait_for(2);
    return 0;
}

uint32_t return_last(void* arguments) {
    auto& call = *static_cast<Call*>(arguments);
    call.wait_for(1);
    CHECK(lend_to_kernel(call.area.address));   // as if both had faulted before either had the pages
    CHECK(!lend_to_kernel(call.area.address));  // they are there: another fault is the kernel's own
    call.step = 2;
    call.wait_for(3);
    CHECK(call.first_word() == 5);
    return 0;
}

void a_kernel_keeps_the_pages_when_another_returns() {
    Call call{.area = area(new_device(), 256)};
    call.area.set(0, 5);
    std::thread last([&] { CHECK(call_kernel(return_last, &call) == 0); });
    CHECK(call_kernel(return_first, &call) == 0);
    call.step = 3;
    last.join();
    call.area.close();
}

}  // namespace

NATIVE_TEST(test_kernel_calls) {
    open_heap();
    RUN(a_kernel_keeps_the_pages_when_another_returns());
    return 0;
}
