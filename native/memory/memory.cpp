#include "memory/memory.h"

namespace peerlane {

Memory Memory::allocate(uint32_t device, uint64_t size, bool peer) {
    Heap& heap = Heap::get();
    Memory memory;
    memory.extent_ = heap.allocate(device, size, peer);
    memory.id_ = memory.extent_->id.load(std::memory_order_relaxed);
    memory.address_ = heap.address_of(memory.extent_);
    memory.size_ = size;
    memory.owner_ = true;
    if (log::wanted()) [[unlikely]] heap.log_extent(log::Kind::allocated, memory.extent_);
    return memory;
}

Memory Memory::at(uint64_t address, uint64_t size) {
    Heap& heap = Heap::get();
    const Range held = heap.resolve("address", address, size);
    if (!held.extent) throw Refusal{.why = Why::unknown_address, .role = "address", .address = address, .size = size};
    Memory memory;
    uint64_t offset = 0;
    heap.space().contains(address, offset);
    memory.extent_ = held.extent;
    memory.id_ = held.extent->id.load(std::memory_order_relaxed);
    memory.address_ = heap.address_of(held.extent) + (offset - held.extent->offset);
    memory.size_ = size;
    if (held.extent->mapping) {
        memory.reservation_ = heap.reservation_at(offset);
        memory.extent_ = nullptr;
        if (memory.reservation_) memory.id_ = memory.reservation_->id;
    }
    heap.unpin(held);
    if (!memory.extent_ && !memory.reservation_) memory.refuse_closed();
    return memory;
}

void Memory::refuse_bounds(const Memory& whole) const {
    throw Refusal{.why = Why::out_of_bounds, .role = "address", .address = address_, .size = size_,
                  .within = {.base = whole.address_, .size = whole.size_, .allocation = id_}};
}

Memory::Memory(uint64_t address, uint64_t size, bool read_only, bool host_view)
    : address_(address), size_(size), read_only_(read_only), host_view_(host_view) {}

Memory::Memory(ReservationPtr reservation, uint64_t offset, uint64_t size, bool read_only)
    : reservation_(std::move(reservation)), id_(reservation_->id), address_(Heap::get().address_of(*reservation_) + offset), size_(size), read_only_(read_only) {
    const uint64_t span = reservation_->span.load(std::memory_order_acquire);
    if (offset > span || size > span - offset)
        throw Refusal{.why = Why::out_of_bounds, .role = "address", .address = address_, .size = size,
                      .within = {.base = address_ - offset, .size = span, .allocation = id_}};
}

Memory::Memory(Memory&& other) noexcept
    : extent_(other.extent_), reservation_(std::move(other.reservation_)), id_(other.id_), address_(other.address_), size_(other.size_), owner_(other.owner_.exchange(false)),
      read_only_(other.read_only_), host_view_(other.host_view_), lease_(std::move(other.lease_)) {}

void Memory::end() {
    const log::ByNoLine by_no_line;
    try {
        close();
    } catch (...) {
        // A destructor cannot report it; at worst the memory is kept.
    }
}

void Memory::close() {
    closed_.store(true, std::memory_order_relaxed);
    if (Heap::get().is_forked()) return;   // the parent's, and nothing of it is here
    if (owner_.exchange(false, std::memory_order_acq_rel)) Heap::get().retire(extent_, id_);
}

bool Memory::hand_over(Extent*& extent, uint64_t& id) {
    if (!owner_.exchange(false, std::memory_order_acq_rel)) return false;
    extent = extent_;
    id = id_;
    closed_.store(true, std::memory_order_relaxed);
    extent_->give_up();
    return true;
}

void Memory::take_back() {
    extent_->take_back();
    closed_.store(false, std::memory_order_relaxed);
    owner_.store(true, std::memory_order_release);
}

void Memory::borrow(LeasePtr lease, bool mapped) {
    if (!mapped || !reservation_) {
        lease_ = std::move(lease);
        return;
    }
    Heap& heap = Heap::get();
    const Range held = pin();
    heap.borrow(held, *reservation_, std::move(lease));
    heap.unpin(held);
}

void Memory::end_with(const LeasePtr& lease) const {
    Heap& heap = Heap::get();
    const Range held = pin();
    try {
        heap.end_with(held, lease);
    } catch (...) {
        heap.unpin(held);
        throw;
    }
    heap.unpin(held);
}

void Memory::refuse_closed() const {
    if (has_ended() && !closed_) refuse_ended(*lease(), "address", address_, size_, extent_ ? extent_->device : reservation_->device);
    throw Refusal{.why = Why::closed, .role = "address", .address = address_, .size = size_, .within = {.allocation = id_}};
}

uint64_t Memory::address() const {
    if (!is_live()) [[unlikely]] refuse_closed();
    return address_;
}

void Memory::refuse_writing() const {
    throw Refusal{.why = Why::read_only, .role = "dst", .address = address_, .size = size_};
}

uint64_t Memory::writable_address() const {
    if (read_only_) [[unlikely]] refuse_writing();
    return address();
}

Range Memory::pin_elsewhere() const {
    if (!reservation_) return {.host = reinterpret_cast<char*>(address_)};
    if (reservation_->closed) [[unlikely]] refuse_closed();
    if (size_ == 0) return {};
    return Heap::get().resolve("address", address_, size_);   // nothing else can lie there before the last of them is gone
}

char* Memory::pin_view() {
    if (is_foreign() && !host_view_)
        throw Refusal{.why = Why::unknown_address, .role = "address", .address = address_, .size = size_};
    return pin().host;
}

Range Memory::viewed() const {
    if (extent_) return range();
    if (!reservation_ || size_ == 0) return {};
    const Heap& heap = Heap::get();
    uint64_t offset = 0;
    heap.space().contains(address_, offset);
    Extent* extent = heap.space().peek(offset);
    return {heap.space().shadow(offset), extent, offset + size_, extent->device};
}

bool Memory::may_view_only() const {
    const Heap& heap = Heap::get();
    bool read_only = read_only_;
    heap.each_extent(viewed(), [&](const Extent* extent) {
        read_only |= extent->block->read_only;
        if (!extent->mapping) return;
        unsigned rights = extent->mapping->rights(extent->device);
        if (reservation_) rights |= extent->mapping->rights(reservation_->device);
        if (!(rights & Mapping::kRead))
            throw Refusal{.why = Why::no_access, .role = "src", .address = heap.address_of(extent), .size = extent->size,
                          .device = extent->device};
        read_only |= !(rights & Mapping::kWrite);
    });
    return read_only;
}

const char* Memory::view_address() const {
    if (reservation_) {
        uint64_t offset = 0;
        Heap::get().space().contains(address_, offset);
        return Heap::get().space().shadow(offset);
    }
    return extent_ ? range().host : nullptr;
}

void Memory::unpin_view() { Heap::get().unpin(viewed()); }

}  // namespace peerlane
