#include "memory/kernel_call.h"

#include <sys/mman.h>

#include "memory/fault_guard.h"
#include "memory/heap.h"

namespace peerlane {

namespace {

// What a kernel has touched.  A signal handler fills it: no memory is allocated there.
struct Lent {
    static constexpr size_t kMost = 1024;   // allocations that one kernel may touch
    struct Part {
        Extent* extent;
        char* at;
        uint64_t bytes;   // 0: nothing was mapped
    };
    Part parts[kMost];
    size_t count = 0;

    bool has(uintptr_t address) const {
        for (size_t i = 0; i < count; ++i)
            if (address - reinterpret_cast<uintptr_t>(parts[i].at) < parts[i].bytes) return true;
        return false;
    }
};

thread_local Lent* lent __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

bool lend_to_kernel(uintptr_t address) {
    if (!lent || lent->count == Lent::kMost || lent->has(address)) return false;
    const AddressSpace& space = Heap::get().space();
    const uint64_t offset = address - space.guard_base();
    if (offset >= space.window()) return false;
    Extent* const extent = space.peek(offset);
    if (!extent) return false;
    Lent::Part& part = lent->parts[lent->count++];
    part = {extent, nullptr, 0};   // also one that was freed meanwhile is owed its unpin
    if (!extent->pin() || offset - extent->offset >= extent->size || extent->moved) return false;
    const uint64_t begin = extent->offset / kPage * kPage, end = round_up(extent->offset + extent->size, kPage);
    char* const at = reinterpret_cast<char*>(space.guard_base() + begin);
    // An old size of 0 maps the same pages once more.
    if (mremap(space.shadow(begin), 0, end - begin, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at) return false;
    part.at = at;
    part.bytes = end - begin;
    return true;
}

uint32_t call_kernel(Kernel kernel, void* arguments) {
    install_fault_handlers();
    rearm_fault_handlers();
    Lent mine;
    lent = &mine;
    const uint32_t code = kernel(arguments);
    lent = nullptr;
    for (size_t i = 0; i < mine.count; ++i) {
        const Lent::Part& part = mine.parts[i];
        if (part.bytes) unmap_range(part.at, part.bytes, true);
        Heap::get().unpin(part.extent);
    }
    return code;
}

}  // namespace peerlane
