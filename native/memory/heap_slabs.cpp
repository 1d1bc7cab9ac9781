// Slots of slabs: allocations below 2 MiB.
#include "memory/heap.h"

#include <cerrno>
#include <sys/mman.h>
#include <type_traits>

namespace peerlane {

namespace {

// Pages of zeros that are not touched before they are used: a slab of 8,192 slots may hold one allocation.
template <class T>
T* zeroed(uint32_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    const size_t bytes = count * sizeof(T);
    void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) throw Refusal{.why = Why::system_memory, .size = bytes, .error = errno};
    return static_cast<T*>(got);
}

}  // namespace

unsigned Heap::class_of(uint64_t size) {
    if (size <= 4096) return static_cast<unsigned>((size + 255) / 256 - 1);
    const uint64_t last = size - 1;
    const unsigned power = 63 - static_cast<unsigned>(__builtin_clzll(last));
    return 16 + (power - 12) * 4 + static_cast<unsigned>(last >> (power - 2) & 3);
}

uint64_t Heap::class_size(unsigned index) {
    if (index < 16) return (index + 1) * 256;
    const unsigned power = 12 + (index - 16) / 4, quarter = (index - 16) % 4;
    return (uint64_t{1} << power) + (quarter + 1) * (uint64_t{1} << (power - 2));
}

void Heap::list_slab(Slab* slab) {
    Slab*& head = device(slab->device).with_room[class_of(slab->slot_size)];
    slab->previous = nullptr;
    slab->next = head;
    if (head) head->previous = slab;
    head = slab;
    slab->listed = true;
}

void Heap::unlist_slab(Slab* slab) {
    if (slab->previous)
        slab->previous->next = slab->next;
    else
        device(slab->device).with_room[class_of(slab->slot_size)] = slab->next;
    if (slab->next) slab->next->previous = slab->previous;
    slab->listed = false;
}

Slab* Heap::new_slab(unsigned size_class) {
    if (auto& spare = spare_slabs_[size_class]; !spare.empty()) {
        Slab* slab = spare.back();
        spare.pop_back();
        return slab;
    }
    auto slab = std::make_unique<Slab>();   // type-stable once it is out: never freed
    slab->slot_size = static_cast<uint32_t>(class_size(size_class));
    slab->slots = static_cast<uint32_t>(kGranule / slab->slot_size);
    slab->reciprocal = (uint64_t{1} << 42) / slab->slot_size + 1;
    slab->extents = zeroed<Extent>(slab->slots);
    slab->ring = zeroed<uint32_t>(slab->slots);
    return slab.release();
}

Slab* Heap::open_slab(uint32_t number, unsigned size_class) {
    Slab* slab = new_slab(size_class);
    Cached entry;
    try {
        entry = obtain(number, kGranule, class_size(size_class));
    } catch (...) {
        spare_slabs_[size_class].push_back(slab);
        throw;
    }
    slab->device = number;
    slab->block = entry.block;
    slab->offset.store(entry.offset, std::memory_order_relaxed);
    slab->fresh = slab->used = slab->ring_head = slab->ring_count = 0;
    enter_region(number, entry, {nullptr, slab});
    space_.set(entry.offset, slab);
    list_slab(slab);
    return slab;
}

Extent* Heap::allocate_slot(uint32_t number, uint64_t size) {
    unsigned size_class = class_of(size);
    // Where the host has the addresses, the bytes can be shared only page by page and in place.  Of pinned memory the checker closes whole pages.
    if (number == kHost ? log::is_read(log::kChecker) : device(number).settings.host_access)
        while (class_size(size_class) % kPage != 0) ++size_class;
    Slab* slab = device(number).with_room[size_class];
    if (!slab) slab = open_slab(number, size_class);
    uint32_t slot;
    if (slab->fresh < slab->slots) {
        slot = slab->fresh++;
    } else {
        slot = slab->ring[slab->ring_head];
        slab->ring_head = (slab->ring_head + 1) % slab->slots;
        --slab->ring_count;
    }
    if (++slab->used == slab->slots) unlist_slab(slab);
    Extent* extent = &slab->extents[slot];
    extent->offset = slab->offset.load(std::memory_order_relaxed) + uint64_t{slot} * slab->slot_size;
    extent->block = slab->block;
    extent->slab = slab;
    extent->slot = slot;
    return extent;
}

void Heap::release_slot(Extent* extent) {
    Slab* slab = extent->slab;
    slab->ring[(slab->ring_head + slab->ring_count++) % slab->slots] = extent->slot;
    if (!slab->listed) list_slab(slab);
    if (--slab->used != 0) return;
    const uint64_t offset = slab->offset.load(std::memory_order_relaxed);
    unlist_slab(slab);
    space_.clear(offset, kGranule);
    regions_.erase(offset);
    or_lose([&] { spare_slabs_[class_of(slab->slot_size)].push_back(slab); });
    put_away(slab->device, {offset, slab->block});
}

}  // namespace peerlane
