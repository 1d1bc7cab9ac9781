#include "stream/descriptor.h"

#include <cstring>

#include "memory/fault_guard.h"
#include "stream/scheduler.h"

namespace peerlane {

// The batch owns the pin from here on, also when this throws.
Range PinList::keep(const Range& range, Extent*& last) {
    if (!range.extent) return range;
    try {
        batch_.pins.push_back(range);
    } catch (...) {
        Heap::get().unpin(range);
        throw;
    }
    last = range.end_offset <= range.extent->offset + range.extent->size ? range.extent : nullptr;
    return range;
}

Range PinList::dst(const Memory& memory) {
    if (last_dst_ && !memory.is_read_only() && memory.lies_in(last_dst_)) return memory.range();
    return keep(memory.pin_writable(), last_dst_);
}

Range PinList::src(const Memory& memory) {
    if (last_src_ && memory.lies_in(last_src_)) return memory.range();
    return keep(memory.pin(), last_src_);
}

Range PinList::end(const char* role, uint64_t address, uint64_t size, Extent*& last) {
    Heap& heap = Heap::get();
    if (last) {
        const uint64_t at = address - heap.address_of(last);
        if (at < last->size && size <= last->size - at && last->is_live()) {
            return {heap.host_of(last, at), last, last->offset + at + size, last->device};
        }
    }
    return keep(heap.resolve(role, address, size), last);
}

void PinList::add(const Range& dst, const Range& src, uint64_t size, bool direct) {
    Heap::get().check_access(dst, src, batch_.actor);
    batch_.pieces.push_back({dst.host, src.host, size, needs_staging(dst, src, direct)});
}

namespace {

[[noreturn]] void refuse(ListField field, uint64_t entry, uint64_t actual, uint64_t most = 0) {
    throw Refusal{.why = Why::bad_descriptor, .list = {.actual = actual, .most = most, .field = static_cast<int>(field)},
                  .entry = entry};
}

void read_guarded(char* to, const char* from, uint64_t size) {
    FaultGuard guard;
    if (guarded(guard, [=] { memcpy(to, from, size); })) return;
    const Side side = side_at("src", from, size);
    throw explain_fault(guard, &side, 1);
}

void check_end(const Range& range, ListField field, uint64_t address, uint64_t entry, uint32_t only_device) {
    if (!range.extent) refuse(field, entry, address);
    if (only_device != 0 && range.device != only_device) refuse(ListField::wrong_device, entry, address);
}

}  // namespace

void Launch::read(const char* host, bool direct) {
    ListHeader header;
    if (table_size < sizeof header) refuse(ListField::count, 0, 0);
    read_guarded(reinterpret_cast<char*>(&header), host, sizeof header);
    const uint64_t room = (table_size - sizeof header) / sizeof(ListEntry);
    if (header.magic != ListHeader::kMagic) refuse(ListField::magic, 0, header.magic);
    if (header.version != ListHeader::kVersion) refuse(ListField::version, 0, header.version);
    if (header.entry_size != sizeof(ListEntry)) refuse(ListField::entry_size, 0, header.entry_size);
    if (header.reserved != 0) refuse(ListField::reserved, 0, header.reserved);
    if (header.count > room) refuse(ListField::count, 0, header.count, room);
    std::vector<ListEntry> entries(header.count);
    if (header.count != 0)
        read_guarded(reinterpret_cast<char*>(entries.data()), host + sizeof header, header.count * sizeof(ListEntry));
    PinList pins(*this);
    pieces.reserve(header.count);
    for (uint64_t i = 0; i < header.count; ++i) {
        const ListEntry& entry = entries[i];
        if (entry.reserved != 0) refuse(ListField::reserved, i + 1, entry.reserved);
        if (entry.size == 0) continue;
        try {
            const Range dst = pins.dst(entry.dst, entry.size);
            check_end(dst, ListField::dst, entry.dst, i + 1, only_device);
            const Range src = pins.src(entry.src, entry.size);
            check_end(src, ListField::src, entry.src, i + 1, only_device);
            pins.add(dst, src, entry.size, direct);
        } catch (Refusal& refusal) {
            refusal.entry = i + 1;
            throw refusal;
        }
    }
}

}  // namespace peerlane
