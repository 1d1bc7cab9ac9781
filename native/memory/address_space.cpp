#include "memory/address_space.h"

#include <cerrno>
#include <sys/mman.h>

#include "memory/fault_guard.h"
#include "memory/refusal.h"

namespace peerlane {

namespace {

constexpr uint64_t kSmallestWindow = uint64_t{1} << 30;
constexpr uint64_t kWindowAlignment = uint64_t{1} << 30;   // so that 1 GiB granularity can be honoured

uint64_t reserve(uint64_t size) {
    const uint64_t padded = size + kWindowAlignment;
    void* got = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return 0;
    const auto start = reinterpret_cast<uint64_t>(got);
    const uint64_t base = (start + kWindowAlignment - 1) & ~(kWindowAlignment - 1);
    if (base > start) munmap(got, base - start);
    munmap(reinterpret_cast<void*>(base + size), start + padded - (base + size));
    return base;
}

}  // namespace

void AddressSpace::open(uint64_t bytes) {
    uint64_t window = (bytes / 2) & ~(kWindowAlignment - 1);
    if (window < kSmallestWindow) window = kSmallestWindow;
    for (; window >= kSmallestWindow; window = (window / 2) & ~(kWindowAlignment - 1)) {
        const uint64_t guard = reserve(window);
        const uint64_t shadow = guard ? reserve(window) : 0;
        void* table = MAP_FAILED;
        const uint64_t table_bytes = (window >> kGranuleShift) * sizeof(uint64_t);
        if (shadow)
            table = mmap(nullptr, table_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (table != MAP_FAILED) {
            table_ = static_cast<std::atomic<uint64_t>*>(table);
            guard_ = guard;
            shadow_ = shadow;
            window_ = window;
            insert_free(0, window);
            explain_faults_in(guard, window);
            return;
        }
        if (guard) munmap(reinterpret_cast<void*>(guard), window);
        if (shadow) munmap(reinterpret_cast<void*>(shadow), window);
    }
    throw Refusal{.why = Why::address_space, .size = bytes, .error = errno};
}

void AddressSpace::insert_free(uint64_t offset, uint64_t span) {
    free_by_offset_.emplace(offset, span);
    free_by_span_.emplace(span, offset);
}

void AddressSpace::erase_free(std::map<uint64_t, uint64_t>::iterator where) {
    free_by_span_.erase({where->second, where->first});
    free_by_offset_.erase(where);
}

uint64_t AddressSpace::take(uint64_t span, uint64_t alignment) {
    for (const bool also_behind_ranges : {false, true})
        for (auto fit = free_by_span_.lower_bound({span, 0}); fit != free_by_span_.end(); ++fit) {
            const auto [room, start] = *fit;
            const uint64_t offset = (start + alignment - 1) & ~(alignment - 1);
            if (offset - start > room - span || (!also_behind_ranges && range_ends_.count(start) != 0)) continue;
            erase_free(free_by_offset_.find(start));
            if (offset > start) insert_free(start, offset - start);
            if (start + room > offset + span) insert_free(offset + span, start + room - offset - span);
            return offset;
        }
    throw Refusal{.why = Why::address_space, .size = span};
}

bool AddressSpace::take_at(uint64_t offset, uint64_t span) {
    auto after = free_by_offset_.upper_bound(offset);
    if (after == free_by_offset_.begin()) return false;
    const auto [start, room] = *--after;
    if (offset - start > room || span > room - (offset - start)) return false;
    erase_free(after);
    if (offset > start) insert_free(start, offset - start);
    if (start + room > offset + span) insert_free(offset + span, start + room - offset - span);
    return true;
}

void AddressSpace::note_end(uint64_t offset) {
    try {
        range_ends_.insert(offset);
    } catch (const std::bad_alloc&) {
        // Then others may take what lies behind it.
    }
}

uint64_t AddressSpace::take_range(uint64_t span, uint64_t alignment) {
    uint64_t offset = 0;
    bool taken = false;
    if (!free_by_span_.empty()) {
        const auto [room, start] = *free_by_span_.rbegin();
        offset = (start + room / 2 + alignment - 1) & ~(alignment - 1);
        // Where room is scarce it is better not cut in two.
        taken = room / 16 >= span && room / 16 >= alignment && take_at(offset, span);
    }
    if (!taken) offset = take(span, alignment);
    note_end(offset + span);
    return offset;
}

bool AddressSpace::take_range_at(uint64_t offset, uint64_t span) {
    if (!take_at(offset, span)) return false;
    note_end(offset + span);
    return true;
}

bool AddressSpace::grow_range(uint64_t offset, uint64_t span, uint64_t more) {
    if (!take_range_at(offset + span, more)) return false;
    range_ends_.erase(offset + span);
    return true;
}

void AddressSpace::give_range(uint64_t offset, uint64_t span) {
    range_ends_.erase(offset + span);
    give(offset, span);
}

void AddressSpace::give(uint64_t offset, uint64_t span) {
    auto after = free_by_offset_.lower_bound(offset);
    if (after != free_by_offset_.end() && after->first == offset + span) {
        span += after->second;
        erase_free(after++);
    }
    if (after != free_by_offset_.begin()) {
        auto before = std::prev(after);
        if (before->first + before->second == offset) {
            offset = before->first;
            span += before->second;
            erase_free(before);
        }
    }
    insert_free(offset, span);
}

void AddressSpace::fill(uint64_t offset, uint64_t span, uint64_t entry) {
    const uint64_t first = offset >> kGranuleShift, last = (offset + span - 1) >> kGranuleShift;
    for (uint64_t granule = first; granule <= last; ++granule)
        table_[granule].store(entry, std::memory_order_release);
}

void AddressSpace::set(uint64_t offset, uint64_t span, Extent* extent) {
    fill(offset, span, reinterpret_cast<uint64_t>(extent));
}
void AddressSpace::set(uint64_t offset, Slab* slab) {
    fill(offset, kGranule, reinterpret_cast<uint64_t>(slab) | 1);
}
void AddressSpace::clear(uint64_t offset, uint64_t span) { fill(offset, span, 0); }

}  // namespace peerlane
