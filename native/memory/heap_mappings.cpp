// Addresses reserved first, and blocks mapped into them later.
#include <algorithm>
#include <cerrno>

#include "memory/heap.h"
#include "share/lease.h"

namespace peerlane {

namespace {
constexpr uint64_t kMostAlignment = uint64_t{1} << 30;   // of the windows themselves

// Under the lock that a mapping is changed under; who reads sees the old rights or the new.
void set_rights(Mapping& mapping, Access access) {
    if (access.device == Access::kAll) {
        for (uint32_t i = 0; i < (mapping.devices + 31) / 32; ++i)
            mapping.words[i].store((access.rights & 3) * 0x5555555555555555u, std::memory_order_release);
        return;
    }
    auto& word = mapping.words[access.device / 32];
    const unsigned shift = access.device % 32 * 2;
    uint64_t value = word.load(std::memory_order_relaxed);
    value = (value & ~(uint64_t{3} << shift)) | uint64_t{access.rights & 3} << shift;
    word.store(value, std::memory_order_release);
}

std::unique_ptr<Mapping> new_mapping(uint64_t reservation, uint32_t devices, unsigned others,
                                     const std::vector<Access>& named) {
    auto mapping = std::make_unique<Mapping>();
    const uint32_t words = (devices + 31) / 32;
    mapping->reservation = reservation;
    mapping->devices = devices;
    mapping->words.reset(new std::atomic<uint64_t>[words]);
    set_rights(*mapping, {Access::kAll, others});
    for (const Access& access : named)
        if (access.device < devices) set_rights(*mapping, access);
    return mapping;
}

// What is mapped of a block when addresses from `limit` bytes on are out of bounds.
uint64_t span_of(const Block* block, uint64_t limit) {
    return limit < block->size ? std::min(round_up(limit, kGranule), block->size) : block->size;
}
uint64_t span_of(const Extent* mapped) { return span_of(mapped->block, mapped->size); }
}  // namespace

ReservationPtr Heap::reserve(uint64_t span, uint64_t alignment, uint32_t number, uint64_t wanted) {
    begin_use();
    std::lock_guard lock(mutex_);
    if (!device(number).open) throw Refusal{.why = Why::closed, .device = number};
    if (span == 0 || span > space_.window() || alignment > kMostAlignment)
        throw Refusal{.why = Why::address_space, .size = span};
    span = round_up(span, kGranule);
    uint64_t offset;
    const bool hinted = space_.contains(wanted, offset) && offset % std::max(alignment, kGranule) == 0 &&
                        span <= space_.window() - offset && space_.take_range_at(offset, span);
    if (!hinted) offset = space_.take_range(span, std::max(alignment, kGranule));
    try {
        auto reservation = std::make_shared<Reservation>(next_id_.fetch_add(1), offset, number, span);
        reservations_[offset] = reservation;
        return reservation;
    } catch (const std::bad_alloc&) {
        space_.give_range(offset, span);
        throw;
    }
}

uint64_t Heap::address_of(const Reservation& reservation) const {
    return (device(reservation.device).settings.host_access ? space_.shadow_base() : space_.guard_base()) + reservation.offset;
}

ReservationPtr Heap::reservation_at(uint64_t offset) {
    std::lock_guard lock(mutex_);
    auto reservation = reservations_.upper_bound(offset);
    if (reservation == reservations_.begin()) return nullptr;
    --reservation;
    return offset - reservation->first < reservation->second->span.load(std::memory_order_acquire) ? reservation->second : nullptr;
}

bool Heap::grow(Reservation& reservation, uint64_t span) {
    check_usable();
    std::lock_guard lock(mutex_);
    if (reservation.closed) throw Refusal{.why = Why::closed, .device = reservation.device};
    if (span > space_.window()) return false;
    span = round_up(span, kGranule);
    const uint64_t before = reservation.span.load(std::memory_order_relaxed);
    if (span <= before) return true;
    if (!space_.grow_range(reservation.offset, before, span - before)) return false;
    reservation.span.store(span, std::memory_order_release);
    return true;
}

void Heap::release(Reservation& reservation) {
    check_usable();
    std::vector<std::pair<Extent*, uint64_t>> doomed;
    {
        std::lock_guard lock(mutex_);
        if (reservation.closed.load(std::memory_order_relaxed)) return;
        const uint64_t end = reservation.offset + reservation.span.load(std::memory_order_relaxed);
        for (auto at = regions_.lower_bound(reservation.offset); at != regions_.end() && at->first < end; ++at)
            doomed.emplace_back(at->second.extent, at->second.extent->id.load(std::memory_order_relaxed));
        reservation.closed.store(true, std::memory_order_release);
        if (reservation.mapped == 0) free_addresses(reservation);
    }
    for (auto& [extent, id] : doomed) retire(extent, id);
}

void Heap::free_addresses(Reservation& reservation) {
    or_lose([&] { space_.give_range(reservation.offset, reservation.span.load(std::memory_order_relaxed)); });
    reservations_.erase(reservation.offset);
}

Extent* Heap::map(Reservation& reservation, uint64_t at, Block* block, unsigned others, const std::vector<Access>& named,
                  uint64_t limit) {
    check_usable();
    std::lock_guard lock(mutex_);
    const uint64_t base = address_of(reservation), span = reservation.span.load(std::memory_order_relaxed);
    if (reservation.closed) throw Refusal{.why = Why::closed, .device = reservation.device};
    if (!device(block->device).open) throw Refusal{.why = Why::closed, .device = block->device};
    const uint64_t wanted = span_of(block, limit);
    if (at > span || wanted > span - at || at % kGranule != 0)
        throw Refusal{.why = Why::out_of_bounds, .role = "address", .address = base + at, .size = wanted,
                      .within = {.base = base, .size = span}, .device = reservation.device};
    const uint64_t offset = reservation.offset + at;
    for (uint64_t granule = offset; granule < offset + wanted; granule += kGranule)
        if (space_.peek(granule)) throw Refusal{.why = Why::overlap, .address = base + at, .size = wanted};
    auto mapping = new_mapping(reservation.id, device_count_, others, named);
    Extent* extent = new_extent();
    mapping->is_guarded = block->device == kHost && !device(reservation.device).settings.host_access;
    try {
        map_block(block, space_.shadow(offset), false, wanted);
        if (mapping->is_guarded) {
            map_block(block, space_.guard(offset), false, wanted);
            let_program(space_.guard(offset), wanted, mapping->rights(kHost));
        }
        regions_[offset] = {extent, nullptr};
    } catch (...) {
        unmap_range(space_.shadow(offset), wanted, true);
        if (mapping->is_guarded) unmap_range(space_.guard(offset), wanted, true);
        spare_extents_.push_back(extent);
        throw;
    }
    hold(block);
    extent->offset = offset;
    extent->size = std::min(limit, block->size);
    extent->block = block;
    extent->slab = nullptr;
    extent->device = block->device;
    extent->mapping = mapping.release();
    extent->moved = 0;
    extent->peer = block->peer;
    extent->id.store(next_id_.fetch_add(1), std::memory_order_relaxed);
    ++device(block->device).live;
    ++reservation.mapped;
    space_.set(offset, wanted, extent);
    extent->revive();
    return extent;
}

Extent* Heap::mapped_at(const Reservation& reservation, uint64_t at) {
    const auto region = regions_.find(reservation.offset + at);
    const bool inside = at < reservation.span.load(std::memory_order_relaxed);
    if (reservation.closed || !inside || region == regions_.end() || !region->second.extent->is_live())
        throw Refusal{.why = Why::not_mapped, .role = "address", .address = address_of(reservation) + at, .device = reservation.device};
    return region->second.extent;
}

void Heap::unmap(Reservation& reservation, uint64_t at) {
    check_usable();
    Extent* extent;
    uint64_t id;
    {
        std::lock_guard lock(mutex_);
        extent = mapped_at(reservation, at);
        id = extent->id.load(std::memory_order_relaxed);
        if (log::context.of_free && log::wanted()) [[unlikely]] log_unmapped(extent);
    }
    retire(extent, id);
}

void Heap::set_access(Reservation& reservation, uint64_t at, uint64_t size, Access access) {
    check_usable();
    std::lock_guard lock(mutex_);
    const uint64_t span = reservation.span.load(std::memory_order_relaxed);
    if (at > span || size > span - at)
        throw Refusal{.why = Why::not_mapped, .role = "address", .address = address_of(reservation) + span, .device = reservation.device};
    std::vector<const Extent*> extents;
    for (uint64_t reached = at; reached < at + size;) {
        const Extent* extent = mapped_at(reservation, reached);
        reached += span_of(extent);
        if (reached > at + size || (access.device >= extent->mapping->devices && access.device != Access::kAll))
            throw Refusal{.why = Why::not_mapped, .role = "address", .address = address_of(reservation) + at + size,
                          .device = reservation.device};
        extents.push_back(extent);
    }
    for (const Extent* extent : extents) {
        const bool is_of_program = extent->mapping->is_guarded && (access.device == kHost || access.device == Access::kAll);
        if (is_of_program) let_program(space_.guard(extent->offset), span_of(extent), access.rights);
        set_rights(*extent->mapping, access);
    }
}

unsigned Heap::rights(Reservation& reservation, uint64_t at, uint32_t number) {
    check_usable();
    std::lock_guard lock(mutex_);
    uint64_t within;
    const Extent* extent = at < reservation.span.load() ? extent_of_host(reservation.offset + at, within) : nullptr;
    if (!extent || !extent->mapping || !extent->is_live())
        throw Refusal{.why = Why::not_mapped, .role = "address", .address = address_of(reservation) + at, .device = reservation.device};
    return number == kHost && extent->device != kHost ? 0 : extent->mapping->rights(number);
}

void Heap::reclaim_mapping(Extent* extent) {
    const uint64_t offset = extent->offset;
    Block* block = extent->block;
    const auto reservation = std::prev(reservations_.upper_bound(offset));
    const uint64_t span = span_of(extent);
    unmap_range(space_.shadow(offset), span, true);
    if (extent->mapping->is_guarded) unmap_range(space_.guard(offset), span, true);
    space_.clear(offset, span);
    regions_.erase(offset);
    delete extent->mapping;
    extent->mapping = nullptr;
    extent->block = nullptr;
    or_lose([&] { spare_extents_.push_back(extent); });
    if (--reservation->second->mapped == 0 && reservation->second->closed) {
        const ReservationPtr last = reservation->second;
        free_addresses(*last);
    }
    drop(block);
}

void Heap::end_with(const Range& range, const std::shared_ptr<Lease>& lease) {
    std::vector<std::shared_ptr<Lease>> over;   // not let go under the lock
    std::lock_guard lock(mutex_);
    each_extent(range, [&](const Extent* extent) {
        const uint64_t id = extent->id.load(std::memory_order_relaxed);
        auto [each, last] = lent_.equal_range(id);
        while (each != last) {
            if (each->second->ended() == Lease::live) {
                ++each;
                continue;
            }
            over.push_back(each->second);
            each = lent_.erase(each);
        }
        lent_.emplace(id, lease);
    });
}

void Heap::borrow(const Range& range, Reservation& reservation, std::shared_ptr<Lease> lease) {
    std::lock_guard lock(mutex_);
    each_extent(range, [&](const Extent* extent) { extent->mapping->lease = lease; });
    reservation.lease = std::move(lease);
}

void Heap::check_lease(const char* role, const Range& range) const {
    each_extent(range, [&](const Extent* extent) { check_lease(role, *extent); });
}

void Heap::check_lease(const char* role, const Extent& extent) const {
    const Lease* const lease = extent.mapping ? extent.mapping->lease.get() : nullptr;
    if (lease && lease->ended() != Lease::live) [[unlikely]]
        refuse_ended(*lease, role, address_of(&extent), extent.size, extent.device);
}

void refuse_ended(const Lease& lease, const char* role, uint64_t address, uint64_t size, uint32_t device) {
    throw Refusal{.why = Why::lease_ended, .role = role, .address = address, .size = size,
                  .lease = {.id = lease.id, .end = static_cast<int>(lease.ended())}, .device = device};
}

void Heap::check_mappings(const Range& dst, const Range& src, uint32_t actor) const {
    const auto check = [&](const char* role, const Range& range, const Range& other, unsigned wanted) {
        each_extent(range, [&](const Extent* extent) {
            if (wanted == Mapping::kWrite && extent->block->read_only)
                throw Refusal{.why = Why::imported_read_only, .role = role, .address = address_of(extent),
                              .size = extent->size, .device = extent->device};
            if (!extent->mapping) return;
            check_lease(role, *extent);
            const auto may = [&](uint32_t number) {
                return (number != kHost || extent->device == kHost) && extent->mapping->rights(number) & wanted;
            };
            bool granted = may(extent->device) || may(actor);
            each_extent(other, [&](const Extent* end) { granted = granted || may(end->device); });
            if (!granted)
                throw Refusal{.why = Why::no_access, .role = role, .address = address_of(extent), .size = extent->size,
                              .device = extent->device, .other_device = actor};
        });
    };
    check("dst", dst, src, Mapping::kWrite);
    check("src", src, dst, Mapping::kRead);
}

}  // namespace peerlane
