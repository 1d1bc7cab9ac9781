// Blocks that live by themselves: physical memory, and allocations that were exported to other processes.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "memory/fault_guard.h"
#include "memory/heap.h"

namespace peerlane {

namespace {
constexpr std::chrono::milliseconds kLongestCopy{20};   // of less than 2 MiB

// Whether any of these bytes was written: what is not even zero takes no memory, and need take none.
bool has_data(const Block& block, uint64_t from, uint64_t size) {
    const off_t data = lseek(block.fd, static_cast<off_t>(from), SEEK_DATA);
    return data < 0 ? errno != ENXIO : static_cast<uint64_t>(data) < from + size;
}

// Writes the first bytes of a block, which is mapped nowhere.  Throws Refusal.
void fill(const Block& block, const char* from, uint64_t size) {
    FaultGuard guard;
    char apart[kPage];
    for (uint64_t done = 0; done < size;) {
        uint64_t most = size - done;
        ssize_t written = pwrite(block.fd, from + done, most, static_cast<off_t>(done));
        if (written < 0 && errno == EFAULT) {   // what guards the memory sees threads that touch it, and not the system
            most = std::min(most, kPage);
            if (!guarded(guard, [&] { memcpy(apart, from + done, most); }))
                throw Refusal{.why = Why::device_fault, .size = size, .device = block.device};
            written = pwrite(block.fd, apart, most, static_cast<off_t>(done));
        }
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) throw Refusal{.why = Why::system_memory, .size = size, .error = written < 0 ? errno : ENOSPC};
        done += static_cast<uint64_t>(written);
    }
}
}

Block* Heap::charged_block(uint32_t number, uint64_t size, const std::string& name) {
    Device& payer = device(number);
    charge(payer, number, size, size);
    payer.held -= size;   // the block's account has it from here on
    std::unique_ptr<Account> account;
    try {
        if (payer.ledger) account = std::make_unique<Account>(payer.ledger, payer.index, size);
    } catch (const std::bad_alloc&) {
        payer.ledger->refund(payer.index, size);
        throw;
    }
    Block* block;
    try {
        block = create_block(size, number, name);
    } catch (const Refusal&) {
        if (trim_locked() == 0) throw;
        block = create_block(size, number, name);
    }
    block->account = std::move(account);
    return block;
}

Block* Heap::create_physical(uint32_t number, uint64_t size, bool peer, const std::string& name) {
    begin_use();
    std::lock_guard lock(mutex_);
    if (!device(number).open) throw Refusal{.why = Why::closed, .device = number};
    if (size == 0 || size > kLargest)
        throw Refusal{.why = Why::out_of_memory, .size = size,
                      .room = {.free = free_bytes(number), .capacity = device(number).settings.capacity}, .device = number};
    Block* const block = charged_block(number, round_up(size, kGranule), name);
    block->peer = peer;
    return block;
}

Block* Heap::share(Extent* extent, uint64_t& within) {
    check_usable();
    std::lock_guard lock(mutex_);
    if (extent->block->origin)
        throw Refusal{.why = Why::imported, .address = address_of(extent), .size = extent->size, .device = extent->device};
    if (extent->slab && !extent->moved) {
        move_out(extent);
    } else if (!extent->block->account) {
        Device& payer = device(extent->device);
        if (payer.ledger) {
            extent->block->account = std::make_unique<Account>(payer.ledger, payer.index, extent->block->size);
            payer.held -= extent->block->size;
        }
    }
    within = 0;
    extent->block->peer = extent->peer;
    hold(extent->block);
    return extent->block;
}

void Heap::list(Block& block) {
    std::lock_guard lock(mutex_);
    if (block.account) block.account->share(block.id);
}

// The caller's pin is the only one allowed: what others hold is a pointer to where the bytes are now.
void Heap::move_out(Extent* extent) {
    const Refusal in_use{.why = Why::in_use, .address = address_of(extent), .size = extent->size,
                         .within = {.allocation = extent->id.load(std::memory_order_relaxed)}, .device = extent->device};
    uint64_t before = extent->state.load(std::memory_order_relaxed);
    do {
        if (!(before & Extent::kLive) || (before & Extent::kFreeQueued)) throw in_use;
    } while (!extent->state.compare_exchange_weak(before, before - Extent::kLive + Extent::kMoving, std::memory_order_acq_rel));
    const auto stay = [&] {
        extent->state.fetch_add(Extent::kLive - Extent::kMoving, std::memory_order_acq_rel);
    };
    // Nobody begins any more; copies of other threads that run end soon.
    const auto until = std::chrono::steady_clock::now() + kLongestCopy;
    while ((extent->state.load(std::memory_order_acquire) & Extent::kPins) != 1) {
        if (std::chrono::steady_clock::now() > until) {
            stay();
            throw in_use;
        }
        std::this_thread::yield();
    }
    const Spot before_it = spot_of(host_of(extent, 0));
    // In its own pages, where it has some: pages next to one another share a table, and the host may use the address itself.
    const bool in_place = extent->slab->slot_size % kPage == 0;
    Block* block = nullptr;
    uint64_t offset = extent->offset;
    bool taken = false;
    try {
        block = charged_block(extent->device, round_up(extent->size, kPage));
        if (has_data(*extent->block, before_it.offset, extent->size)) fill(*block, host_of(extent, 0), extent->size);
        if (!in_place) {
            offset = space_.take(kGranule);
            taken = true;
        }
        map_block(block, space_.shadow(offset), extent->device == kHost);
    } catch (...) {
        if (taken) or_lose([&] { space_.give(offset, kGranule); });
        if (block) drop(block);
        stay();
        throw;
    }
    block->at = space_.shadow(offset);
    extent->block = block;
    extent->moved = 1;
    if (!in_place) space_.set(offset, kGranule, extent);
    if (log::wanted()) [[unlikely]] {   // before anybody uses it there
        log::Spans spans;
        spans.add(before_it.block, before_it.offset, extent->size, false);
        spans.add(block->id, 0, extent->size, true);
        log::write({.kind = log::Kind::moved, .a = extent->id.load(std::memory_order_relaxed), .spans = &spans});
    }
    stay();
}

bool Heap::drop_moved(Extent* extent) {
    const auto offset = static_cast<uint64_t>(extent->block->at - space_.shadow(0));
    bool is_back = true;
    if (offset == extent->offset) {
        const uint64_t within = offset - extent->slab->offset.load(std::memory_order_relaxed);
        is_back = map_part(extent->slab->block, space_.shadow(offset), within, extent->block->size);
        if (!is_back) unmap_range(space_.shadow(offset), extent->block->size, true);
    } else {
        space_.clear(offset, kGranule);
        unmap_range(extent->block->at, kGranule, true);
        or_lose([&] { space_.give(offset, kGranule); });
    }
    drop(extent->block);
    extent->moved = 0;
    extent->block = extent->slab->block;
    return is_back;
}

bool Heap::pin_slowly(Extent* extent) {
    while (true) {
        const uint64_t state = extent->state.load(std::memory_order_acquire);
        if (state & Extent::kLive) return true;   // the move ended since: what was counted then holds it
        unpin(extent);                            // who moves it waits for those who really use it
        if (!(state & Extent::kMoving)) return false;
        while (extent->state.load(std::memory_order_acquire) & Extent::kMoving) pause_hook.load(std::memory_order_relaxed)();
        if (extent->pin()) return true;
    }
}

}  // namespace peerlane
