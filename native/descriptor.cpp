#include "descriptor.h"

#include <cstring>

#include "fault_guard.h"
#include "scheduler.h"

namespace peerlane {

void PinList::keep(const Range& range, Extent*& last) {
    if (!range.extent) return;
    const bool is_one = range.end_offset <= range.extent->offset + range.extent->size;
    if (is_one && range.extent == last) {
        Heap::get().unpin(range);
        return;
    }
    try {
        batch_.pins.push_back(range);
    } catch (...) {
        Heap::get().unpin(range);
        throw;
    }
    last = is_one ? range.extent : nullptr;
}

void PinList::add(const Range& dst, const Range& src, uint64_t size, bool direct) {
    bool staged;
    try {
        staged = needs_staging(dst.extent, src.extent, direct);
        batch_.pieces.push_back({dst.host, src.host, size, staged});
    } catch (...) {
        Heap::get().unpin(dst);
        Heap::get().unpin(src);
        throw;
    }
    try {
        keep(dst, last_dst_);
    } catch (...) {
        Heap::get().unpin(src);
        throw;
    }
    keep(src, last_src_);
}

namespace {

[[noreturn]] void refuse(ListField field, uint64_t entry, uint64_t found, uint64_t most = 0) {
    throw Refusal{.why = Why::bad_descriptor, .address = found, .size = most, .error = static_cast<int>(field),
                  .entry = entry};
}

void read_guarded(char* to, const char* from, uint64_t size) {
    FaultGuard guard;
    if (guarded(guard, [=] { memcpy(to, from, size); })) return;
    const Side side = side_at("src", from, size);
    throw explain_fault(guard.address, &side, 1);
}

Range resolve_entry(const char* role, ListField field, uint64_t address, uint64_t size, uint64_t entry,
                    uint32_t only_device) {
    Range range;
    try {
        range = Heap::get().resolve(role, address, size);
    } catch (Refusal& refusal) {
        refusal.entry = entry;
        throw refusal;
    }
    if (!range.extent) refuse(field, entry, address);
    if (only_device != 0 && range.device != only_device) {
        Heap::get().unpin(range);
        refuse(ListField::wrong_device, entry, address);
    }
    return range;
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
        const Range dst = resolve_entry("dst", ListField::dst, entry.dst, entry.size, i + 1, only_device);
        Range src;
        try {
            src = resolve_entry("src", ListField::src, entry.src, entry.size, i + 1, only_device);
        } catch (...) {
            Heap::get().unpin(dst);
            throw;
        }
        try {
            pins.add(dst, src, entry.size, direct);
        } catch (Refusal& refusal) {
            refusal.entry = i + 1;
            throw refusal;
        }
    }
}

}  // namespace peerlane
