#include "memory/heap.h"

#include <cstring>
#include <pthread.h>

#include "memory/fault_guard.h"
#include "share/broker.h"
#include "share/importer.h"
#include "share/lease.h"

namespace peerlane {

namespace {
constexpr int kFreshByte = 0xCB, kFreedByte = 0xDD;

// The broker's lock may be taken inside the heap's.
void prepare_heap_fork() {
    Heap::get().fork_prepare();
    Exporter::fork_prepare();
    Broker::get().fork_prepare();
}
void parent_after_fork() {
    Broker::get().fork_parent();
    Exporter::fork_parent();
    Heap::get().fork_parent();
}
void child_after_fork() {
    const bool served = Broker::get().fork_child(), opened = Exporter::fork_child();
    Heap::get().fork_child(served || opened);
}
std::atomic<bool> created{false};
}  // namespace

// The guard is wanted by copies between host addresses too, before any node is entered.
Heap::Heap() {
    install_fault_handlers();
    pthread_atfork(prepare_heap_fork, parent_after_fork, child_after_fork);
    created.store(true, std::memory_order_relaxed);
}

void Heap::configure(const HeapSettings& settings) {
    check_usable();
    std::lock_guard lock(mutex_);
    settings_ = settings;
    poison_.store(settings.poison, std::memory_order_relaxed);
    if (space_.is_open()) return;
    space_.open(settings.window_bytes);
    auto* host = new Device;
    host->settings = {.capacity = UINT64_MAX, .host_access = true};
    devices_[kHost].store(host, std::memory_order_release);
    device_count_ = 1;
}

uint32_t Heap::add_device(const DeviceSettings& settings, std::shared_ptr<Ledger> ledger, uint64_t index) {
    check_usable();
    std::lock_guard lock(mutex_);
    uint32_t number = 1;
    while (number < device_count_ && (device(number).open || device(number).live != 0)) ++number;
    if (number == kMaxDevices) throw Refusal{.why = Why::address_space, .size = kMaxDevices};
    if (number == device_count_) {
        devices_[number].store(new Device, std::memory_order_release);
        ++device_count_;
    }
    Device& fresh = device(number);
    fresh.settings = settings;
    fresh.ledger = std::move(ledger);
    fresh.index = index;
    fresh.held = 0;
    fresh.open = true;
    return number;
}

void Heap::close_device(uint32_t number) {
    check_usable();
    std::vector<std::pair<Extent*, uint64_t>> doomed;
    std::vector<ReservationPtr> reservations;
    {
        std::lock_guard lock(mutex_);
        for (const auto& [offset, reservation] : reservations_)
            if (reservation->device == number) reservations.push_back(reservation);
        Device& closing = device(number);
        closing.open = false;
        for (auto& word : closing.routes) word.store(0, std::memory_order_relaxed);
        for (uint32_t other = 1; other < device_count_; ++other)
            device(other).routes[number / 64].fetch_and(~(uint64_t{1} << (number % 64)));
        for (auto& [offset, region] : regions_) {
            if (region.extent && region.extent->device == number)
                doomed.emplace_back(region.extent, region.extent->id.load());
            if (region.slab && region.slab->device == number)
                for (uint32_t slot = 0; slot < region.slab->fresh; ++slot) {
                    Extent& extent = region.slab->extents[slot];
                    if (extent.is_live()) doomed.emplace_back(&extent, extent.id.load());
                }
        }
    }
    const log::ByNoLine by_no_line;
    for (auto& [extent, id] : doomed) retire(extent, id);
    for (const ReservationPtr& reservation : reservations) release(*reservation);
    std::lock_guard lock(mutex_);
    device(number).ledger.reset();   // the process gives its slot back: what a view still holds is nobody's charge
    for (auto entry = cache_.begin(); entry != cache_.end();) {
        auto next = std::next(entry);
        if (entry->block->device == number) {
            cache_bytes_ -= entry->block->size;
            destroy(*entry);
            cache_.erase(entry);
        }
        entry = next;
    }
}

uint64_t Heap::free_bytes(uint32_t number) {
    check_usable();
    std::lock_guard lock(mutex_);
    Device& asked = device(number);
    const uint64_t used = asked.ledger ? asked.ledger->used(asked.index) : asked.held;
    return used > asked.settings.capacity ? 0 : asked.settings.capacity - used;
}

void Heap::charge(Device& payer, uint32_t number, uint64_t bytes, uint64_t asked) {
    const bool granted = payer.ledger ? payer.ledger->charge(payer.index, bytes, payer.settings.capacity)
                                      : bytes <= payer.settings.capacity && payer.held <= payer.settings.capacity - bytes;
    if (!granted) {
        const uint64_t used = payer.ledger ? payer.ledger->used(payer.index) : payer.held, all = payer.settings.capacity;
        throw Refusal{.why = Why::out_of_memory, .size = asked, .room = {.free = used < all ? all - used : 0, .capacity = all},
                      .device = number};
    }
    payer.held += bytes;
}

void Heap::refund(Device& payer, uint64_t bytes) {
    payer.held -= bytes;
    if (!payer.ledger) return;
    try {
        payer.ledger->refund(payer.index, bytes);
    } catch (const Refusal&) {
        // Somebody cut the node's file: there is no account left to put right.
    }
}

Heap::Cached Heap::obtain(uint32_t number, uint64_t span, uint64_t asked) {
    Device& payer = device(number);
    charge(payer, number, span, asked);
    for (auto entry = cache_.rbegin(); entry != cache_.rend(); ++entry) {
        if (entry->block->device != number || entry->block->size != span) continue;
        Cached cached = *entry;
        cache_.erase(std::next(entry).base());
        cache_bytes_ -= span;
        return cached;
    }
    try {
        try {
            return obtain_fresh(number, span);
        } catch (const Refusal&) {
            if (trim_locked() == 0) throw;
        }
        return obtain_fresh(number, span);
    } catch (...) {
        refund(payer, span);
        throw;
    }
}

// A block that cannot be entered goes back at once.
void Heap::enter_region(uint32_t number, const Cached& entry, Region region) {
    try {
        regions_[entry.offset] = region;
    } catch (const std::bad_alloc&) {
        put_away(number, entry);
        throw;
    }
}

Heap::Cached Heap::obtain_fresh(uint32_t number, uint64_t span) {
    const uint64_t offset = space_.take(span);
    Block* block = nullptr;
    try {
        block = create_block(span, number);
        map_block(block, space_.shadow(offset), number == kHost);
    } catch (...) {
        if (block) drop(block);
        space_.give(offset, span);
        throw;
    }
    return {offset, block};
}

void Heap::put_away(uint32_t number, Cached entry) {
    const bool shared = entry.block->is_shared();
    if (!entry.block->account && !entry.block->origin) refund(device(number), entry.block->size);
    if (shared || !device(number).open || entry.block->size > settings_.cache_bytes) {
        destroy(entry);
        return;
    }
    try {
        cache_.push_back(entry);
    } catch (const std::bad_alloc&) {
        destroy(entry);
        return;
    }
    cache_bytes_ += entry.block->size;
    while (cache_bytes_ > settings_.cache_bytes) {
        cache_bytes_ -= cache_.front().block->size;
        destroy(cache_.front());
        cache_.pop_front();
    }
}

void Heap::destroy(const Cached& entry) {
    const uint64_t span = round_up(entry.block->size, kGranule);
    unmap_range(space_.shadow(entry.offset), span, entry.block->is_shared());
    drop(entry.block);
    or_lose([&] { space_.give(entry.offset, span); });
}

uint64_t Heap::trim_locked() {
    const uint64_t dropped = cache_bytes_;
    for (const Cached& entry : cache_) destroy(entry);
    cache_.clear();
    cache_bytes_ = 0;
    return dropped;
}

uint64_t Heap::trim() {
    check_usable();
    std::lock_guard lock(mutex_);
    return trim_locked();
}

uint64_t Heap::cached_bytes() {
    check_usable();
    std::lock_guard lock(mutex_);
    return cache_bytes_;
}

Extent* Heap::new_extent() {
    if (spare_extents_.empty()) {
        constexpr size_t kBatch = 64;
        auto* batch = new Extent[kBatch];   // type-stable: never freed
        for (size_t i = 0; i < kBatch; ++i) spare_extents_.push_back(&batch[i]);
    }
    Extent* extent = spare_extents_.back();
    spare_extents_.pop_back();
    return extent;
}

Extent* Heap::allocate(uint32_t number, uint64_t size, bool peer) {
    begin_use();
    if (size == 0 || size > kLargest)
        throw Refusal{.why = Why::out_of_memory, .size = size,
                      .room = {.free = free_bytes(number), .capacity = device(number).settings.capacity}, .device = number};
    std::lock_guard lock(mutex_);
    if (!device(number).open) throw Refusal{.why = Why::closed, .device = number};
    Extent* extent = size < kGranule ? allocate_slot(number, size) : allocate_large(number, size);
    extent->size = size;
    extent->device = number;
    extent->mapping = nullptr;
    extent->moved = 0;
    extent->peer = peer;
    extent->id.store(next_id_.fetch_add(1), std::memory_order_relaxed);
    ++device(number).live;
    if (poison_.load(std::memory_order_relaxed)) poison(extent, kFreshByte);
    extent->revive();   // under the lock: who closes the device next finds it
    return extent;
}

Extent* Heap::allocate_large(uint32_t number, uint64_t size) {
    const uint64_t span = round_up(size, kGranule);
    Extent* extent = new_extent();
    Cached entry;
    try {
        entry = obtain(number, span, size);
    } catch (...) {
        spare_extents_.push_back(extent);   // it came from there: there is room
        throw;
    }
    extent->offset = entry.offset;
    extent->block = entry.block;
    extent->slab = nullptr;
    enter_region(number, entry, {extent, nullptr});
    space_.set(entry.offset, span, extent);
    return extent;
}

void Heap::poison(const Extent* extent, int byte) {
    FaultGuard guard;
    char* start = host_of(extent, 0);
    const uint64_t size = extent->size;
    (void)guarded(guard, [=] { memset(start, byte, size); });   // no page: the first user will hear of it
}

bool Heap::is_current(const Extent* extent, uint64_t id) const {
    return extent->id.load(std::memory_order_relaxed) == id && extent->is_open();
}

void Heap::retire(Extent* extent, uint64_t id) {
    check_usable();
    bool mine = false;
    std::vector<std::shared_ptr<Lease>> ending;   // not let go under the lock
    {
        std::lock_guard lock(mutex_);
        if (extent->id.load(std::memory_order_relaxed) == id) {
            if (!lent_.empty()) end_leases(id, ending);
            if (log::wanted() && extent->is_live()) [[unlikely]] log_extent(log::Kind::freed, extent);
            mine = extent->retire();
        }
    }
    if (mine) reclaim(extent);
}

void Heap::end_leases(uint64_t id, std::vector<std::shared_ptr<Lease>>& ended) {
    const auto [first, last] = lent_.equal_range(id);
    for (auto each = first; each != last; ++each) {
        each->second->end(Lease::freed);
        or_lose([&] { ended.push_back(std::move(each->second)); });
    }
    lent_.erase(first, last);
}

void Heap::reclaim(Extent* extent) {
    if (forked_.load(std::memory_order_relaxed)) return;   // a child's view of its parent's memory: not ours to free
    std::lock_guard lock(mutex_);
    --device(extent->device).live;
    if (extent->mapping) {
        reclaim_mapping(extent);
        return;
    }
    if (poison_.load(std::memory_order_relaxed) && !extent->block->is_shared()) poison(extent, kFreedByte);
    if (extent->moved && !drop_moved(extent)) return;   // better a slot less than one without bytes
    if (extent->slab) {
        release_slot(extent);
        return;
    }
    const Cached entry{extent->offset, extent->block};
    space_.clear(entry.offset, round_up(entry.block->size, kGranule));
    regions_.erase(entry.offset);
    extent->block = nullptr;
    or_lose([&] { spare_extents_.push_back(extent); });
    put_away(extent->device, entry);
}

uint64_t Heap::live_allocations(uint32_t number) {
    check_usable();
    std::lock_guard lock(mutex_);
    return device(number).live;
}

void Heap::fork_prepare() {
    mutex_.lock();
    lock_descriptors();
}
void Heap::fork_parent() {
    unlock_descriptors();
    mutex_.unlock();
}
void Heap::fork_child(bool shares) {
    forked_.store(true, std::memory_order_relaxed);
    inherits_nothing_ = !shares && !used_.load(std::memory_order_relaxed) && reservations_.empty() && regions_.empty() &&
                        count_descriptors() == cache_.size();
    close_all_descriptors();
    unlock_descriptors();
    mutex_.unlock();
}

bool Heap::is_created() { return created.load(std::memory_order_relaxed); }

bool Heap::begin_anew() {
    std::lock_guard lock(mutex_);
    if (!inherits_nothing_) return false;
    for (const Cached& entry : cache_) {   // the parent's: this process has none of their pages, and must not return them to the system
        unmap_range(space_.shadow(entry.offset), round_up(entry.block->size, kGranule), true);
        or_lose([&] { space_.give(entry.offset, round_up(entry.block->size, kGranule)); });
        entry.block->fd = -1;
        drop(entry.block);
    }
    cache_.clear();
    cache_bytes_ = 0;
    draw_block_ids();
    forked_.store(false, std::memory_order_relaxed);
    return true;
}

}  // namespace peerlane
