// From an address range to host memory.
#include <algorithm>

#include "memory/heap.h"

namespace peerlane {

namespace {

// Host memory ends where a window begins: what lies there has bounds of its own.
void refuse_reaching(const AddressSpace& space, const char* role, uint64_t address, uint64_t size) {
    for (const uint64_t base : {space.guard_base(), space.shadow_base()})
        if (base != 0 && address < base && size > base - address)
            throw Refusal{.why = Why::host_fault, .role = role, .address = address, .size = size, .fault_address = base};
}

}  // namespace

void Heap::refuse_range(Why why, const char* role, uint64_t address, uint64_t size, Extent* extent) {
    Refusal refusal{.why = why, .role = role, .address = address, .size = size};
    if (extent) {
        refusal.within = {address_of(extent), extent->size, extent->id.load(std::memory_order_relaxed)};
        refusal.device = extent->device;
        unpin(extent);
    }
    throw refusal;
}

Range Heap::resolve(const char* role, uint64_t address, uint64_t size) {
    uint64_t offset;
    if (address + size < address) throw Refusal{.why = Why::overflow, .role = role, .address = address, .size = size};
    if (!space_.contains(address, offset)) {
        refuse_reaching(space_, role, address, size);
        return {.host = reinterpret_cast<char*>(address)};
    }
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
                    .within = {address_of(first), reached - first->offset, first->id.load(std::memory_order_relaxed)},
                    .device = first->device};
    range.end_offset = reached;
    unpin(range);
    throw refusal;
}

void Heap::unpin_from(uint64_t reached, uint64_t end) {
    while (reached < end) {
        // Pinned by us, so the table still leads to it even when it was retired meanwhile.
        Extent* next = space_.peek(reached);
        reached += next->size;
        unpin(next);
    }
}

Neighbour Heap::nearest(uint64_t address) {
    Neighbour best;
    uint64_t offset, best_distance = UINT64_MAX;
    check_usable();
    if (!space_.contains(address, offset)) return best;
    std::lock_guard lock(mutex_);
    // In the other window everything lies far away, whatever its offset.
    const bool in_shadow = address - space_.shadow_base() < space_.window();
    bool has_candidate = false;
    const auto consider = [&](const Extent& extent) {
        if (!extent.is_live() || device(extent.device).settings.host_access != in_shadow) return;
        has_candidate = true;
        const uint64_t end = extent.offset + extent.size;
        const uint64_t distance = offset < extent.offset ? extent.offset - offset : offset >= end ? offset - end + 1 : 0;
        if (distance >= best_distance) return;
        best_distance = distance;
        best = {address_of(&extent), extent.size, extent.id.load(std::memory_order_relaxed), extent.device, true};
    };
    const auto consider_region = [&](const Region& region) {
        if (region.extent) consider(*region.extent);
        if (region.slab)
            for (uint32_t slot = 0; slot < region.slab->fresh; ++slot) consider(region.slab->extents[slot]);
    };
    auto after = regions_.upper_bound(offset);
    auto before = after;
    // Two regions on either side have the nearest, if they have any; of those beyond a bounded number are looked at.
    constexpr int kNeighbours = 2, kMost = 256;
    for (int step = 0; step < (has_candidate ? kNeighbours : kMost) && after != regions_.end(); ++step, ++after)
        consider_region(after->second);
    has_candidate = false;
    for (int step = 0; step < (has_candidate ? kNeighbours : kMost) && before != regions_.begin(); ++step)
        consider_region((--before)->second);
    return best;
}

Spot Heap::spot_of(const char* host) const {
    const auto at = reinterpret_cast<uint64_t>(host);
    const uint64_t offset = at - space_.shadow_base();
    if (!space_.is_open() || offset >= space_.window()) return {.offset = at};
    uint64_t within;
    const Extent* extent = extent_of_host(offset, within);
    if (!extent) return {.left = 0};
    const bool in_slab = extent->slab && !extent->moved;
    const uint64_t before = in_slab ? extent->offset - extent->slab->offset.load(std::memory_order_acquire) : 0;
    return {extent->block->id, before + within, extent->size - within};
}

FileSpot Heap::file_spot_of(const char* host) const {
    const Spot spot = spot_of(host);
    if (spot.block == 0) return {};
    uint64_t within;
    const Extent* const extent = extent_of_host(reinterpret_cast<uint64_t>(host) - space_.shadow_base(), within);
    return {extent->block, spot.offset, spot.left};
}

void Heap::log_extent(log::Kind kind, const Extent* extent) const noexcept {
    if (extent->mapping) return;   // what is mapped there has its own life
    const Spot spot = spot_of(host_of(extent, 0));
    log::Spans spans;
    spans.add(spot.block, spot.offset, extent->size, true);
    log::write({.kind = kind, .flags = kind == log::Kind::freed ? log::context.of_free : uint8_t{0}, .a = extent->id.load(std::memory_order_relaxed),
                .b = uint64_t{1} + extent->device, .spans = &spans});
}

std::vector<std::pair<uint64_t, uint32_t>> Heap::live_blocks() {
    std::vector<std::pair<uint64_t, uint32_t>> blocks;
    const auto add = [&](const Extent& extent) {
        if (extent.is_live()) blocks.emplace_back(extent.block->id, extent.block->device);
    };
    std::lock_guard lock(mutex_);
    for (const auto& [offset, region] : regions_) {
        if (region.extent) add(*region.extent);
        if (region.slab)
            for (uint32_t slot = 0; slot < region.slab->fresh; ++slot) add(region.slab->extents[slot]);
    }
    return blocks;
}

// No event has the mapping that an access used, so nothing is logged of a block with another mapping.
void Heap::log_unmapped(const Extent* extent) const noexcept {
    const auto is_other = [&](const auto& region) {
        const Extent* const other = region.second.extent;
        return other != extent && other->block == extent->block && other->is_live();
    };
    if (std::any_of(regions_.begin(), regions_.end(), is_other)) return;
    const Spot spot = spot_of(host_of(extent, 0));
    log::Spans spans;
    spans.add(spot.block, spot.offset, extent->size, true);
    log::write({.kind = log::Kind::freed, .flags = log::kEnd | log::kShared, .spans = &spans});
}

}  // namespace peerlane
