// Allocations on devices: large ones own a block, small ones are slots of a slab; capacity and cache.
#pragma once
#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <new>
#include <vector>

#include "log/log.h"
#include "memory/address_space.h"
#include "memory/ledger.h"
#include "memory/refusal.h"

namespace peerlane {

inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

constexpr uint64_t kPage = 4096;
constexpr uint32_t kHost = 0;             // the device number of pinned host memory
constexpr uint64_t kLargest = uint64_t{1} << 62;   // no capacity is larger, and rounding up cannot wrap
constexpr uint32_t kMaxDevices = 1 << 14;  // at one time; the numbers of closed, empty devices are used again

struct HeapSettings {
    uint64_t window_bytes = uint64_t{64} << 40;
    uint64_t cache_bytes = uint64_t{1} << 30;
    bool poison = false;
};

struct DeviceSettings {
    uint64_t capacity = 0;
    bool host_access = false;          // hand out shadow addresses: the host may touch them
    bool routes_peer_memory_only = false;
};

struct Neighbour {   // a live allocation near an address, for error texts
    uint64_t address = 0, size = 0, id = 0;
    uint32_t device = 0;
    bool exists = false;
};

// A resolved range: its host address, and the first of the extents that it holds pinned.
struct Range {
    char* host = nullptr;
    Extent* extent = nullptr;     // null: pageable host memory
    uint64_t end_offset = 0;      // window offset of the end, for ranges over several mappings
    uint32_t device = kHost;

    bool is_foreign() const { return host && !extent; }
};

// The identity of a byte, independent of its mappings: a block and an offset; with block 0, a host address.
struct Spot {
    uint64_t block = 0, offset = 0;
    uint64_t left = UINT64_MAX;   // contiguous bytes from there on; 0: there is no memory
};

// The same with the block itself, whose file others may read.
struct FileSpot {
    Block* block = nullptr;          // null: it is not memory of a device
    uint64_t offset = 0, left = 0;
};

// Reserved addresses, into which blocks are mapped side by side.
struct Reservation {
    const uint64_t id, offset;
    const uint32_t device;               // the device whose address space they lie in
    std::atomic<uint64_t> span;
    std::atomic<bool> closed{false};
    uint64_t mapped = 0;                 // under the heap's lock
    std::shared_ptr<Lease> lease;        // of the memory that is mapped there; set before the first use

    Reservation(uint64_t id, uint64_t offset, uint32_t device, uint64_t span) : id(id), offset(offset), device(device), span(span) {}
};
using ReservationPtr = std::shared_ptr<Reservation>;

// A device's rights to a mapping: bits of Mapping::kRead and kWrite.
struct Access {
    static constexpr uint32_t kAll = UINT32_MAX;
    uint32_t device;
    unsigned rights;
};

// Without memory for it, a spare object is leaked: freeing memory must not fail.
template <class Work>
void or_lose(const Work& work) {
    try {
        work();
    } catch (const std::bad_alloc&) {
    }
}

// Lets other threads run.  The thread that this one waits for may need the GIL, which this one may hold.
inline std::atomic<void (*)()> pause_hook{std::this_thread::yield};

class Heap {
  public:
    static Heap& get() {   // leaked: late threads may still need it
        static Heap* const heap = new Heap;
        return *heap;
    }
    Heap();

    // The first call opens the windows; later ones change cache bound and poison only.
    void configure(const HeapSettings& settings);

    uint32_t add_device(const DeviceSettings& settings, std::shared_ptr<Ledger> ledger, uint64_t index);
    void close_device(uint32_t device);          // ends all allocations there
    uint64_t free_bytes(uint32_t device);

    Extent* allocate(uint32_t device, uint64_t size, bool peer);   // throws Refusal
    // Called by the owner; the memory is freed after the last pin.  `id` guards against an extent that was reused.
    void retire(Extent* extent, uint64_t id);
    bool is_current(const Extent* extent, uint64_t id) const;
    void unpin(Extent* extent) {
        if (extent->unpin()) reclaim(extent);
    }
    // False, with nothing to undo, if the extent is no longer live.  While the extent moves, this waits in `pause_hook`.
    bool pin(Extent* extent) {
        if (extent->pin()) [[likely]] return true;
        return pin_slowly(extent);
    }
    uint64_t address_of(const Extent* extent) const {
        return (device(extent->device).settings.host_access ? space_.shadow_base() : space_.guard_base()) + extent->offset;
    }

    // A block without an address, charged to the device.  The caller drops it.  Throws Refusal.
    Block* create_physical(uint32_t device, uint64_t size, bool peer, const std::string& name = {});
    // Give the bytes of an extent, which the caller has pinned, a block that other processes may map, and hold the block;
    // the bytes start at `within` of it.  Throws Refusal: in_use if they would have to move while they are in use.
    Block* share(Extent* extent, uint64_t& within);
    void list(Block& block);             // enters it in the node's file, once; throws Refusal

    // Reserve addresses, in which several blocks may lie side by side.  `wanted` (0: any) is taken if it is free.
    ReservationPtr reserve(uint64_t span, uint64_t alignment, uint32_t device, uint64_t wanted = 0);
    bool grow(Reservation& reservation, uint64_t span);   // false: the addresses behind it are in use
    void release(Reservation& reservation);               // with its mappings, each after its last pin; idempotent
    // Throws Refusal; holds the block until the last unpin.  Devices not named have the rights `others`.
    // Maps the block's first `limit` bytes, rounded up to granules; the bytes from `limit` on are out of bounds.
    Extent* map(Reservation& reservation, uint64_t at, Block* block, unsigned others = 3, const std::vector<Access>& named = {},
                uint64_t limit = UINT64_MAX);
    void unmap(Reservation& reservation, uint64_t at);    // the mapping that begins at `at`
    void set_access(Reservation& reservation, uint64_t at, uint64_t size, Access access);   // of whole mappings
    unsigned rights(Reservation& reservation, uint64_t at, uint32_t device);
    // Refuse an access if no device that takes part has the rights: those of the two ends, and `actor`, the stream's
    // (kHost: none).
    void check_access(const Range& dst, const Range& src, uint32_t actor) const {
        const bool guarded = (dst.extent && dst.extent->mapping) || (src.extent && src.extent->mapping);
        if (guarded) [[unlikely]] check_mappings(dst, src, actor);
    }
    // Let a lease end when the allocation of a pinned range is freed.
    void end_with(const Range& range, const std::shared_ptr<Lease>& lease);
    // Refuse uses of a pinned range's mapping in `place` after the lease's end.
    void borrow(const Range& range, Reservation& reservation, std::shared_ptr<Lease> lease);
    // Refuse mappings whose lease has ended.
    void check_leases(const Range& dst, const Range& src) const {
        if (dst.extent && dst.extent->mapping) [[unlikely]] check_lease("dst", dst);
        if (src.extent && src.extent->mapping) [[unlikely]] check_lease("src", src);
    }
    void check_lease(const char* role, const Range& range) const;
    void check_lease(const char* role, const Extent& extent) const;

    uint64_t address_of(const Reservation& reservation) const;
    ReservationPtr reservation_at(uint64_t offset);       // the reservation at an offset of the window, or null
    // The host address of byte `within` of an extent, which is pinned or cannot move.
    char* host_of(const Extent* extent, uint64_t within) const {
        return extent->moved ? extent->block->at + within : space_.shadow(extent->offset + within);
    }
    // The extent whose bytes are at `offset` of the shadow window, with the offset in it; null: none.
    const Extent* extent_of_host(uint64_t offset, uint64_t& within) const {
        const Extent* extent = space_.peek(offset);
        if (!extent) return nullptr;
        const uint64_t start = extent->moved ? static_cast<uint64_t>(extent->block->at - space_.shadow(0)) : extent->offset;
        within = offset - start;
        return within < extent->size ? extent : nullptr;
    }

    Spot spot_of(const char* host) const;   // of memory that is pinned
    FileSpot file_spot_of(const char* host) const;   // the same
    void log_extent(log::Kind kind, const Extent* extent) const noexcept;   // its beginning or its end, for the event log
    std::vector<std::pair<uint64_t, uint32_t>> live_blocks();   // those of live allocations and mappings: their ids and devices
    void log_unmapped(const Extent* extent) const noexcept;                 // mutex_ is held
    Range resolve(const char* role, uint64_t address, uint64_t size);   // throws Refusal
    void unpin(const Range& range) {
        if (!range.extent) return;
        const uint64_t reached = range.extent->offset + range.extent->size;
        unpin(range.extent);
        if (reached < range.end_offset) [[unlikely]] unpin_from(reached, range.end_offset);
    }
    // Each extent of a pinned range.
    template <class Visit>
    void each_extent(const Range& range, const Visit& visit) const {
        if (!range.extent) return;
        visit(range.extent);
        for (uint64_t reached = range.extent->offset + range.extent->size; reached < range.end_offset;) {
            const Extent* next = space_.peek(reached);
            reached += next->size;
            visit(next);
        }
    }

    bool route_open(uint32_t a, uint32_t b) const;
    // Both directions are enabled, each by any process of the node.
    bool is_mutual(uint32_t a, uint32_t b);
    // The route between two devices' extents; `why` is the obstacle.  `by_node`: access that other processes enabled may count.
    bool may_go_direct(const Extent& a, const Extent& b, bool by_node, Why& why);
    void set_route(uint32_t from, uint32_t to, bool open);

    uint64_t trim();                             // drop the cache; bytes dropped
    uint64_t cached_bytes();
    Neighbour nearest(uint64_t address);
    uint64_t live_allocations(uint32_t device);
    uint64_t next_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }   // unique among allocations

    const AddressSpace& space() const { return space_; }

    void fork_prepare();
    void fork_parent();
    void fork_child(bool shares);   // whether the parent shared anything
    bool is_forked() const { return forked_.load(std::memory_order_relaxed); }
    void check_usable() const {
        if (forked_.load(std::memory_order_relaxed)) throw Refusal{.why = Why::forked};
    }
    // Called before the first object that a forked child could harm, or would lack; end_use() when the node is left.
    void begin_use() {
        check_usable();
        if (!used_.load(std::memory_order_relaxed)) used_.store(true, std::memory_order_relaxed);
    }
    void end_use() {
        if (!is_forked()) used_.store(false, std::memory_order_relaxed);
    }
    static bool is_created();
    bool begin_anew();   // in a forked child, by its only thread; false: its parent had memory

  private:
    static constexpr unsigned kClasses = 52;

    struct Region {              // the owner of the addresses at an offset: an extent, or a slab
        Extent* extent = nullptr;
        Slab* slab = nullptr;
    };
    struct Cached {
        uint64_t offset;
        Block* block;
    };
    struct Device {
        DeviceSettings settings;
        uint64_t index = 0, held = 0, live = 0;
        bool open = true;
        std::shared_ptr<Ledger> ledger;
        std::array<Slab*, kClasses> with_room{};
        std::array<std::atomic<uint64_t>, kMaxDevices / 64> routes{};   // a bit a device number
    };

    static unsigned class_of(uint64_t size);
    static uint64_t class_size(unsigned index);

    Device& device(uint32_t number) const { return *devices_[number].load(std::memory_order_acquire); }
    void charge(Device& device, uint32_t number, uint64_t bytes, uint64_t asked);
    void refund(Device& device, uint64_t bytes);
    Cached obtain(uint32_t number, uint64_t span, uint64_t asked);   // a charged, mapped block
    Cached obtain_fresh(uint32_t number, uint64_t span);
    void enter_region(uint32_t number, const Cached& entry, Region region);
    void put_away(uint32_t number, Cached entry);                    // refunds; keeps it if there is room
    void destroy(const Cached& entry);
    uint64_t trim_locked();

    Extent* find(uint64_t offset) {   // pinned, or null
        Extent* extent = space_.peek(offset);
        return extent && pin(extent) ? extent : nullptr;
    }
    Extent* new_extent();
    Extent* allocate_large(uint32_t number, uint64_t size);
    Extent* allocate_slot(uint32_t number, uint64_t size);
    Slab* new_slab(unsigned size_class);
    Slab* open_slab(uint32_t number, unsigned size_class);
    void list_slab(Slab* slab);
    void unlist_slab(Slab* slab);
    void release_slot(Extent* extent);
    void reclaim(Extent* extent);
    void end_leases(uint64_t id, std::vector<std::shared_ptr<Lease>>& ended);   // under the lock
    void reclaim_mapping(Extent* extent);
    void free_addresses(Reservation& reservation);
    Extent* mapped_at(const Reservation& reservation, uint64_t at);   // throws Refusal
    void check_mappings(const Range& dst, const Range& src, uint32_t actor) const;
    void move_out(Extent* extent);
    bool drop_moved(Extent* extent);   // false: its slot has no bytes any more
    Block* charged_block(uint32_t number, uint64_t size, const std::string& name = {});
    bool pin_slowly(Extent* extent);
    void unpin_from(uint64_t reached, uint64_t end);   // the mappings side by side in between
    void poison(const Extent* extent, int byte);
    [[noreturn]] void refuse_range(Why why, const char* role, uint64_t address, uint64_t size, Extent* extent);

    std::mutex mutex_;
    AddressSpace space_;
    HeapSettings settings_;
    std::atomic<bool> poison_{false};
    std::atomic<bool> forked_{false}, used_{false};
    bool inherits_nothing_ = false;   // in a forked child
    std::atomic<uint64_t> next_id_{1};
    uint32_t device_count_ = 0;
    std::unique_ptr<std::atomic<Device*>[]> devices_{new std::atomic<Device*>[kMaxDevices]()};
    std::map<uint64_t, Region> regions_;
    std::map<uint64_t, ReservationPtr> reservations_;
    std::unordered_multimap<uint64_t, std::shared_ptr<Lease>> lent_;   // by allocation: the leases that end with it
    std::vector<Extent*> spare_extents_;
    std::array<std::vector<Slab*>, kClasses> spare_slabs_;
    std::list<Cached> cache_;                    // oldest first
    uint64_t cache_bytes_ = 0;
};

}  // namespace peerlane
