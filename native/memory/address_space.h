// The windows and the map from an address to what lies there.
//
// Two equal reservations of address space: addresses are handed out in the guard window, which the host
// cannot touch, and the bytes are mapped at the same offset of the shadow window.  Devices whose memory the
// host may touch ("map") hand out shadow addresses.  Readers of the map take no lock: everything they can
// reach is type-stable, and an extent is trusted only after it was pinned while live.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "memory/block.h"

namespace peerlane {

constexpr unsigned kGranuleShift = 21;
constexpr uint64_t kGranule = uint64_t{1} << kGranuleShift;

class Lease;

// What a mapping is beyond its extent.
struct Mapping {
    static constexpr unsigned kRead = 1, kWrite = 2;

    uint64_t reservation = 0;   // neighbours of the same one continue each other
    bool is_guarded = false;    // memory of the host at guarded addresses, which the program reaches by its rights there
    uint32_t devices = 0;
    std::unique_ptr<std::atomic<uint64_t>[]> words;   // two bits a device number
    std::shared_ptr<Lease> lease;   // of what another process lent, null: it has none; set before the first use

    unsigned rights(uint32_t device) const {
        return device < devices ? words[device / 32].load(std::memory_order_relaxed) >> (device % 32 * 2) & 3 : 0;
    }
};

// One allocation, or one mapping of a block into a reservation.  All zeros is a free one.  One cache line: a
// look-up among many allocations is a miss here, and two would be two.
struct alignas(64) Extent {
    static constexpr uint64_t kLive = uint64_t{1} << 63;
    static constexpr uint64_t kDying = uint64_t{1} << 62;
    static constexpr uint64_t kFreeQueued = uint64_t{1} << 61;   // its owner closed it, a stream will free it
    static constexpr uint64_t kMoving = uint64_t{1} << 60;    // to other bytes; it will be live again
    static constexpr uint64_t kPins = kMoving - 1;

    std::atomic<uint64_t> state{0};
    uint64_t offset = 0;        // from the start of a window
    uint64_t size = 0;          // requested bytes: the bounds
    std::atomic<uint64_t> id{0};   // unique in this process
    Block* block = nullptr;
    Mapping* mapping = nullptr;    // owned; null for an allocation
    uint32_t device = 0;
    uint32_t slot : 30 = 0;     // its index in a slab
    uint32_t peer : 1 = 0;      // allocated for peer access
    uint32_t moved : 1 = 0;     // its bytes left the slab for a block of their own
    struct Slab* slab = nullptr;

    // True when it is live.  Either way an unpin is owed: a reader who came too late may be the last one out.
    bool pin() { return state.fetch_add(1, std::memory_order_acquire) & kLive; }
    // True for the one caller who must give the memory back.
    bool unpin() {
        const uint64_t before = state.fetch_sub(1, std::memory_order_acq_rel);
        return (before & kPins) == 1 && (before & kDying) && claim_reclaim();
    }
    // Ends the extent for new pins; true when the caller must give the memory back now.
    bool retire() {
        uint64_t before = state.load(std::memory_order_relaxed);
        do {
            if (!(before & kLive)) return false;
        } while (!state.compare_exchange_weak(before, (before & ~(kLive | kFreeQueued)) | kDying, std::memory_order_acq_rel));
        return (before & kPins) == 0 && claim_reclaim();
    }
    void revive() { state.fetch_or(kLive, std::memory_order_release); }
    bool is_live() const { return state.load(std::memory_order_acquire) & kLive; }
    // Live, and not only until a stream frees it: what may still be named by address is closed for its buffers.
    bool is_open() const {
        const uint64_t now = state.load(std::memory_order_acquire);
        return (now & (kLive | kMoving)) && !(now & kFreeQueued);
    }
    void give_up() { state.fetch_or(kFreeQueued, std::memory_order_acq_rel); }
    void take_back() { state.fetch_and(~kFreeQueued, std::memory_order_acq_rel); }

  private:
    // Pins of readers who came too late come and go, so the transition itself is the claim.
    bool claim_reclaim() {
        uint64_t expected = kDying;
        return state.compare_exchange_strong(expected, 0, std::memory_order_acq_rel);
    }
};

static_assert(sizeof(Extent) == 64);

// A block of 2 MiB cut into equal slots.  Slabs are reused, never freed: a reader may still hold one.
struct Slab {
    std::atomic<uint64_t> offset{0};
    uint64_t reciprocal = 0;    // 2^42 / slot_size + 1: exact for offsets below 2^21
    uint32_t slot_size = 0;
    uint32_t slots = 0;
    uint32_t used = 0;
    uint32_t device = 0;
    Extent* extents = nullptr;
    Block* block = nullptr;
    uint32_t fresh = 0;                 // the first slot that was never used
    uint32_t* ring = nullptr;           // freed slots, first in first out: freed addresses stay dead longer
    uint32_t ring_head = 0;
    uint32_t ring_count = 0;
    Slab* next = nullptr;               // list of slabs of this class with room
    Slab* previous = nullptr;
    bool listed = false;
};

class AddressSpace {
  public:
    // Reserve the windows (first use); `bytes` is guard and shadow together, halved until the system agrees.
    void open(uint64_t bytes);
    bool is_open() const { return window_ != 0; }

    uint64_t window() const { return window_; }
    uint64_t guard_base() const { return guard_; }
    uint64_t shadow_base() const { return shadow_; }

    // True when `address` lies in either window; then `offset` is its offset there.
    bool contains(uint64_t address, uint64_t& offset) const {
        uint64_t distance = address - guard_;
        if (distance >= window_) {
            distance = address - shadow_;
            if (distance >= window_) return false;
        }
        offset = distance;
        return true;
    }
    char* shadow(uint64_t offset) const { return reinterpret_cast<char*>(shadow_ + offset); }
    char* guard(uint64_t offset) const { return reinterpret_cast<char*>(guard_ + offset); }

    // What the table says of `offset`, without a lock: to be trusted once it is pinned, or under the heap's lock.
    Extent* peek(uint64_t offset) const {
        const uint64_t entry = table_[offset >> kGranuleShift].load(std::memory_order_acquire);
        if (!(entry & 1)) return reinterpret_cast<Extent*>(entry);
        auto* slab = reinterpret_cast<Slab*>(entry & ~uint64_t{1});
        const uint64_t slot = ((offset & (kGranule - 1)) * slab->reciprocal) >> 42;
        return slot < slab->slots ? &slab->extents[slot] : nullptr;
    }

    // The callers below hold the heap's lock.
    uint64_t take(uint64_t span, uint64_t alignment = kGranule);   // an offset; throws Refusal
    bool take_at(uint64_t offset, uint64_t span);            // false: it is not free
    void give(uint64_t offset, uint64_t span);
    // Ranges have room behind them to grow into, as far as there is some: others take that last.
    uint64_t take_range(uint64_t span, uint64_t alignment);   // throws Refusal
    bool take_range_at(uint64_t offset, uint64_t span);       // false: it is not free
    bool grow_range(uint64_t offset, uint64_t span, uint64_t more);
    void give_range(uint64_t offset, uint64_t span);
    void set(uint64_t offset, uint64_t span, Extent* extent);
    void set(uint64_t offset, Slab* slab);
    void clear(uint64_t offset, uint64_t span);

  private:
    void fill(uint64_t offset, uint64_t span, uint64_t entry);
    void insert_free(uint64_t offset, uint64_t span);
    void note_end(uint64_t offset);
    void erase_free(std::map<uint64_t, uint64_t>::iterator where);

    uint64_t guard_ = 0, shadow_ = 0, window_ = 0;
    std::atomic<uint64_t>* table_ = nullptr;
    std::map<uint64_t, uint64_t> free_by_offset_;
    std::set<std::pair<uint64_t, uint64_t>> free_by_span_;   // (span, offset)
    std::set<uint64_t> range_ends_;
};

}  // namespace peerlane
