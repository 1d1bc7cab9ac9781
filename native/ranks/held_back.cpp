#include "ranks/held_back.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>

namespace peerlane {

namespace {

constexpr uint64_t kTable = HeldBack::kEntries * sizeof(HeldEntry);

}  // namespace

void HeldBack::discard() const {
    const auto table_end = static_cast<off_t>(round_up(static_cast<uint64_t>(base() - bank_->start()) + kTable, kPage));
    (void)fallocate(bank_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, table_end,
                    static_cast<off_t>(bank_->bytes()) - table_end);   // refused: they stay
}

struct Undelivered::Copied {
    uint64_t index, sequence, what, place, at, size, bytes, before;
    bool has_begun;
};

bool Undelivered::settle(const SharedSignal& bank, uint32_t index) {
    std::lock_guard lock(mutex_);
    if (!from_->bank().others_live()) {
        take_over(bank);
        return false;
    }
    for (uint64_t i = 0; i < HeldBack::kEntries; ++i) {
        const HeldEntry& entry = from_->entry(i);
        const uint64_t state = entry.state.load(std::memory_order_acquire);
        if ((state == HeldEntry::given || state == HeldEntry::begun) && entry.what == HeldEntry::notify && entry.place == index)
            return true;
    }
    return false;
}

// Nobody writes the entries any more but who is hostile.
void Undelivered::take_over(const SharedSignal& bank) {
    std::vector<Copied> found;
    try {
        for (uint64_t i = 0; i < HeldBack::kEntries; ++i) {
            const HeldEntry& entry = from_->entry(i);
            const uint64_t state = entry.state.load(std::memory_order_acquire);
            if (state == HeldEntry::given || state == HeldEntry::begun)
                found.push_back({i, entry.sequence, entry.what, entry.place, entry.at, entry.size, entry.bytes, entry.before,
                                 state == HeldEntry::begun});
        }
    } catch (const std::bad_alloc&) {
        return;   // at the next look
    }
    std::sort(found.begin(), found.end(), [](const Copied& a, const Copied& b) { return a.sequence < b.sequence; });
    uint64_t room = from_->size();
    for (const Copied& each : found) {
        try {
            apply(each, bank, room);
        } catch (const Refusal&) {   // that memory is gone, or there never was any
        } catch (const std::bad_alloc&) {
        }
        from_->entry(each.index).state.store(HeldEntry::none, std::memory_order_release);
    }
    if (!found.empty()) bank.ring();
}

Operand Undelivered::part(uint64_t place, uint64_t at, uint64_t size) const {
    if (place >= memories_.size()) throw Refusal{.why = Why::out_of_bounds, .size = size};
    const Memory memory(memories_[place], at, size);
    return {"dst", memory.last_address(), size, memory.pin_writable()};
}

char* Undelivered::bytes(uint64_t at, uint64_t size) const {
    if (at > from_->size() || size > from_->size() - at) throw Refusal{.why = Why::out_of_bounds, .size = size};
    return from_->base() + at;
}

namespace {

Operand host_part(char* at, uint64_t size) {
    return {"src", reinterpret_cast<uintptr_t>(at), size, Range{.host = at}};
}

}  // namespace

// In pieces that no team of threads is called for: locks may be held.
void Undelivered::apply(const Copied& entry, const SharedSignal& bank, uint64_t& room) const {
    const auto spend = [](uint64_t& left, uint64_t size) {   // so that a lie does not cost more than the truth might
        if (size > left) throw Refusal{.why = Why::out_of_bounds, .size = size};
        left -= size;
    };
    spend(room, entry.size);
    const auto in_pieces = [](uint64_t size, const auto& visit) {
        for (uint64_t at = 0; at < size; at += std::min(size - at, kBrief)) visit(at, std::min(size - at, kBrief));
    };
    const auto write = [&](uint64_t at, uint64_t size, char* from) {
        in_pieces(size, [&](uint64_t done, uint64_t n) {
            copy(part(entry.place, at + done, n), host_part(from + done, n), n);
        });
    };
    switch (entry.what & 0xFF) {
        case HeldEntry::write:
            (void)part(entry.place, entry.at, entry.size);   // all of it, or nothing
            write(entry.at, entry.size, bytes(entry.bytes, entry.size));
            break;
        case HeldEntry::blocks: {
            struct Block {
                uint64_t to, from, size;
            };
            if (entry.at > from_->size() / sizeof(Block)) throw Refusal{.why = Why::out_of_bounds, .size = entry.at};
            spend(room, entry.at * sizeof(Block));
            const char* const table = bytes(entry.before, entry.at * sizeof(Block));
            uint64_t apart = entry.place < memories_.size() ? memories_[entry.place].size() : 0;   // blocks do not overlap there
            for (uint64_t i = 0; i < entry.at; ++i) {
                Block block;
                memcpy(&block, table + i * sizeof block, sizeof block);
                if (block.from > entry.size || block.size > entry.size - block.from)
                    throw Refusal{.why = Why::out_of_bounds, .size = block.size};
                (void)part(entry.place, block.to, block.size);
                spend(apart, block.size);
                write(block.to, block.size, bytes(entry.bytes, entry.size) + block.from);
            }
            break;
        }
        case HeldEntry::reduce: {
            const uint64_t number = entry.what >> 8;
            if (number >= kElements * kCombines) throw Refusal{.why = Why::out_of_bounds, .size = number};
            const Reduction& reduction = reductions()[number / kCombines][number % kCombines];
            char* const from = bytes(entry.bytes, entry.size);
            {
                const Operand whole = part(entry.place, entry.at, entry.size);
                check_reduced(whole, host_part(from, entry.size), reduction);
            }
            if (entry.has_begun) write(entry.at, entry.size, bytes(entry.before, entry.size));
            in_pieces(entry.size, [&](uint64_t done, uint64_t n) {
                reduce(part(entry.place, entry.at + done, n), host_part(from + done, n), reduction);
            });
            break;
        }
        case HeldEntry::notify: {
            if (entry.place >= bank.bank()) throw Refusal{.why = Why::out_of_bounds, .size = entry.place};
            SignalLine& line = bank.line(static_cast<uint32_t>(entry.place));
            if (!entry.has_begun || line.recorded() == entry.before)
                line.word.fetch_add(SignalLine::kRecord, std::memory_order_acq_rel);
            break;
        }
        default:
            break;
    }
}

}  // namespace peerlane
