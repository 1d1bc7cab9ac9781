// What Python holds: an allocation, a part of one, or foreign memory that somebody else keeps alive.
#pragma once
#include <atomic>
#include <cstdint>

#include "memory/heap.h"
#include "share/lease.h"

namespace peerlane {

class Memory {
  public:
    static Memory allocate(uint32_t device, uint64_t size, bool peer);
    Memory(const Memory& whole, uint64_t offset, uint64_t size)                // a part: does not own
        : extent_(whole.extent_), reservation_(whole.reservation_), id_(whole.id_), address_(whole.address_ + offset), size_(size),
          read_only_(whole.read_only_), host_view_(whole.host_view_), lease_(whole.lease_) {
        if (offset > whole.size_ || size > whole.size_ - offset) [[unlikely]] refuse_bounds(whole);
    }
    Memory(uint64_t address, uint64_t size, bool read_only, bool host_view);   // foreign
    Memory(ReservationPtr reservation, uint64_t offset, uint64_t size, bool read_only);    // what is mapped there, whenever it is used
    static Memory at(uint64_t address, uint64_t size);   // of what lives there now; throws Refusal, also for pageable memory
    Memory(Memory&& other) noexcept;
    ~Memory() {
        if (owner_.load(std::memory_order_relaxed)) end();
    }
    Memory& operator=(Memory&&) = delete;

    uint64_t size() const { return size_; }
    uint64_t id() const { return id_; }
    bool is_live() const {
        return !closed_ && !has_ended() && (extent_ ? Heap::get().is_current(extent_, id_) : !reservation_ || !reservation_->closed);
    }
    bool is_read_only() const { return read_only_; }
    bool is_foreign() const { return !extent_ && !reservation_; }   // host memory that somebody else keeps alive
    bool is_peer() const { return reservation_ || (extent_ && extent_->peer); }
    uint64_t address() const;            // throws Refusal when it is closed
    uint64_t writable_address() const;   // throws Refusal when it is closed or read-only
    uint64_t last_address() const { return address_; }   // for texts: also of what is closed
    // Hand an owner's allocation over to who frees it later: false when there is nothing to free.
    bool hand_over(Extent*& extent, uint64_t& id);
    void take_back();                    // it was not freed after all
    // Use it and its parts only as long as a lease does not end; `mapped`: and whatever is used by its address.  Before the
    // first use.
    void borrow(LeasePtr lease, bool mapped);
    bool is_lent_with(const Memory& other) const { return lease() && lease() == other.lease(); }
    void end_with(const LeasePtr& lease) const;   // which ends when what this lies in is freed
    void close();                        // idempotent; an owner's memory goes back after its last use

    // This very allocation, whatever lives at its address by now; throws Refusal.  The caller unpins.
    Range pin() const {
        Heap& heap = Heap::get();
        heap.check_usable();
        if (closed_.load(std::memory_order_relaxed) || has_ended()) [[unlikely]] refuse_closed();
        if (!extent_) [[unlikely]] return pin_elsewhere();
        if (!heap.pin(extent_)) [[unlikely]] refuse_closed();
        // Used again by another allocation, or about to be freed by a stream.
        if (extent_->id.load(std::memory_order_relaxed) != id_ || !extent_->is_open()) [[unlikely]] {
            heap.unpin(extent_);
            refuse_closed();
        }
        return range();
    }
    Range pin_writable() const {
        if (read_only_) [[unlikely]] refuse_writing();
        return pin();
    }
    // Whether pin() would give a range of this extent, which the caller holds; and that range, without a pin.
    bool lies_in(const Extent* held) const {
        return extent_ == held && !closed_.load(std::memory_order_relaxed) && !has_ended() &&
               held->id.load(std::memory_order_relaxed) == id_ && held->is_open();
    }
    Range range() const {
        const Heap& heap = Heap::get();
        const uint64_t within = address_ - heap.address_of(extent_);
        return {heap.host_of(extent_, within), extent_, extent_->offset + within + size_, extent_->device};
    }
    char* pin_view();                    // host pointer; throws Refusal.  Keeps the bytes until unpin_view
    void unpin_view();
    Range viewed() const;                // while a view holds it: its range, without a pin
    bool may_view_only() const;          // whether a view of it may only be read; throws Refusal if not even that
    const char* view_address() const;    // where the host would find it; null for what nobody else reaches

  private:
    Memory() = default;
    const Lease* lease() const { return lease_ || !reservation_ ? lease_.get() : reservation_->lease.get(); }
    bool has_ended() const {
        const Lease* const lent = lease();
        return lent && lent->ended() != Lease::live;
    }
    [[noreturn]] void refuse_closed() const;
    [[noreturn]] void refuse_writing() const;
    [[noreturn]] void refuse_bounds(const Memory& whole) const;
    Range pin_elsewhere() const;         // of a place, or foreign
    void end();

    Extent* extent_ = nullptr;           // null: foreign, or a place's
    ReservationPtr reservation_;
    uint64_t id_ = 0, address_ = 0, size_ = 0;
    std::atomic<bool> owner_{false}, closed_{false};   // two threads may close one object
    bool read_only_ = false, host_view_ = true;
    LeasePtr lease_;                     // what another process lent has it in its place
};

}  // namespace peerlane
