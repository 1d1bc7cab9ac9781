// From an address range to host memory.
#include "heap.h"

namespace peerlane {

void Heap::refuse_range(Why why, const char* role, uint64_t address, uint64_t size, Extent* extent) {
    Refusal refusal{.why = why, .role = role, .address = address, .size = size};
    if (extent) {
        refusal.base = address_of(extent);
        refusal.extent_size = extent->size;
        refusal.id = extent->id.load(std::memory_order_relaxed);
        refusal.device = extent->device;
        unpin(extent);
    }
    throw refusal;
}

Range Heap::resolve(const char* role, uint64_t address, uint64_t size) {
    uint64_t offset;
    if (address + size < address) throw Refusal{.why = Why::overflow, .role = role, .address = address, .size = size};
    if (!space_.contains(address, offset)) return {.host = reinterpret_cast<char*>(address)};
    Extent* first = find(offset);
    if (!first) refuse_range(Why::unknown_address, role, address, size, nullptr);
    const uint64_t within = offset - first->offset;
    if (within >= first->size) refuse_range(Why::unknown_address, role, address, size, first);
    Range range{host_of(first, within), first, offset + size, first->device};
    if (size <= first->size - within) [[likely]] return range;
    // Only mappings of one reservation continue each other.
    uint64_t reached = first->offset + first->size;
    while (first->mapping && reached < offset + size) {
        Extent* next = reached < space_.window() ? find(reached) : nullptr;
        if (next && next->mapping && next->mapping->reservation == first->mapping->reservation && next->offset == reached) {
            reached += next->size;
            continue;
        }
        if (next) unpin(next);
        break;
    }
    if (reached >= offset + size) return range;
    Refusal refusal{.why = Why::out_of_bounds, .role = role, .address = address, .size = size,
                    .base = address_of(first), .extent_size = reached - first->offset,
                    .id = first->id.load(std::memory_order_relaxed), .device = first->device};
    range.end_offset = reached;
    unpin(range);
    throw refusal;
}

void Heap::unpin(const Range& range) {
    if (!range.extent) return;
    uint64_t reached = range.extent->offset + range.extent->size;
    unpin(range.extent);
    while (reached < range.end_offset) {
        // Pinned by us, so the table still leads to it even when it was retired meanwhile.
        Extent* next = space_.peek(reached);
        reached += next->size;
        unpin(next);
    }
}

}  // namespace peerlane
