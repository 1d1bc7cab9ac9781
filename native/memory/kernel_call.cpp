#include "memory/kernel_call.h"

#include <sys/mman.h>

#include <atomic>

#include "memory/fault_guard.h"
#include "memory/heap.h"

namespace peerlane {

namespace {

// Kernels that take what they touched out of reach, at the moment and so far.
std::atomic<uint64_t> taking{0}, taken{0};

// What a kernel has touched.  A signal handler fills it: no memory is allocated there.
struct Lent {
    static constexpr size_t kMost = 1024;   // allocations that one kernel may touch
    struct Part {
        Extent* extent;
        char* at;
        uint64_t bytes;   // 0: nothing was mapped
        uint64_t taken;   // when it was mapped
    };
    Part parts[kMost];
    size_t count = 0;

    Part* part_at(uintptr_t address) {
        for (size_t i = 0; i < count; ++i)
            if (address - reinterpret_cast<uintptr_t>(parts[i].at) < parts[i].bytes) return &parts[i];
        return nullptr;
    }
};

bool map(Lent::Part& part, char* at, uint64_t bytes, char* shadow) {
    part.taken = taken.load();
    // An old size of 0 maps the same pages once more.
    return mremap(shadow, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
}

thread_local Lent* lent __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

bool lend_to_kernel(uintptr_t address) {
    if (!lent) return false;
    const AddressSpace& space = Heap::get().space();
    const uint64_t offset = address - space.guard_base();
    if (Lent::Part* const part = lent->part_at(address)) {
        // Another kernel touched these pages at the same time, and has returned.  Else the access itself is wrong.
        if (taking.load() == 0 && taken.load() == part->taken) return false;
        return map(*part, part->at, part->bytes, space.shadow(reinterpret_cast<uintptr_t>(part->at) - space.guard_base()));
    }
    if (lent->count == Lent::kMost) return false;
    if (offset >= space.window()) return false;
    Extent* const extent = space.peek(offset);
    if (!extent) return false;
    Lent::Part& part = lent->parts[lent->count++];
    part = {extent, nullptr, 0, 0};   // also one that was freed meanwhile is owed its unpin
    if (!extent->pin() || offset - extent->offset >= extent->size || extent->moved) return false;
    const uint64_t begin = extent->offset / kPage * kPage, end = round_up(extent->offset + extent->size, kPage);
    char* const at = reinterpret_cast<char*>(space.guard_base() + begin);
    if (!map(part, at, end - begin, space.shadow(begin))) return false;
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
    taking.fetch_add(1);
    for (size_t i = 0; i < mine.count; ++i) {
        const Lent::Part& part = mine.parts[i];
        if (part.bytes) unmap_range(part.at, part.bytes, true);
        Heap::get().unpin(part.extent);
    }
    taken.fetch_add(1);
    taking.fetch_sub(1);
    return code;
}

}  // namespace peerlane
