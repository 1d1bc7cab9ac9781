// From an address range to host memory, and ranges made of several blocks.
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
    Range range{space_.shadow(offset), first, offset + size, first->device};
    if (size <= first->size - within) [[likely]] return range;
    // Only mappings of one reservation continue each other.
    const uint64_t reservation = first->reservation;
    uint64_t reached = first->offset + first->size;
    while (reservation != 0 && reached < offset + size) {
        Extent* next = reached < space_.window() ? find(reached) : nullptr;
        if (next && next->reservation == reservation && next->offset == reached) {
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

uint64_t Heap::reserve(uint64_t span, uint64_t alignment, uint32_t number) {
    check_usable();
    std::lock_guard lock(mutex_);
    if (span > space_.window()) throw Refusal{.why = Why::address_space, .size = span};
    span = (span + kGranule - 1) & ~(kGranule - 1);
    const uint64_t offset = space_.take(span, alignment < kGranule ? kGranule : alignment);
    reservations_[offset] = {span, next_id_.fetch_add(1), number};
    return (device(number).settings.host_access ? space_.shadow_base() : space_.guard_base()) + offset;
}

void Heap::release(uint64_t address) {
    check_usable();
    std::lock_guard lock(mutex_);
    uint64_t offset;
    auto found = space_.contains(address, offset) ? reservations_.find(offset) : reservations_.end();
    if (found == reservations_.end()) throw Refusal{.why = Why::unknown_address, .role = "address", .address = address};
    auto inside = regions_.lower_bound(offset);
    if (inside != regions_.end() && inside->first < offset + found->second.span)
        throw Refusal{.why = Why::overlap, .address = address, .size = found->second.span};
    space_.give(offset, found->second.span);
    reservations_.erase(found);
}

Extent* Heap::map(uint64_t address, Block* block) {
    check_usable();
    std::lock_guard lock(mutex_);
    uint64_t offset;
    if (!space_.contains(address, offset) || offset % kGranule != 0)
        throw Refusal{.why = Why::unknown_address, .role = "address", .address = address, .size = block->size};
    auto within = reservations_.upper_bound(offset);
    if (within == reservations_.begin())
        throw Refusal{.why = Why::unknown_address, .role = "address", .address = address, .size = block->size};
    --within;
    const auto& [start, reservation] = *within;
    if (offset - start >= reservation.span || block->size > reservation.span - (offset - start))
        throw Refusal{.why = Why::out_of_bounds, .role = "address", .address = address, .size = block->size,
                      .base = address - (offset - start), .extent_size = reservation.span};
    for (uint64_t at = offset; at < offset + block->size; at += kGranule)
        if (space_.peek(at)) throw Refusal{.why = Why::overlap, .address = address, .size = block->size};
    map_block(block, space_.shadow(offset), false);
    hold(block);
    Extent* extent = new_extent();
    extent->offset = offset;
    extent->size = block->size;
    extent->block = block;
    extent->slab = nullptr;
    extent->device = reservation.device;
    extent->reservation = reservation.id;
    extent->peer = true;
    extent->id.store(next_id_.fetch_add(1), std::memory_order_relaxed);
    ++device(reservation.device).live;
    regions_[offset] = {extent, nullptr};
    space_.set(offset, block->size, extent);
    extent->revive();
    return extent;
}

}  // namespace peerlane
