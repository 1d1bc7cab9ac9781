#include "share/message_rings.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace peerlane {

constexpr uint64_t kHeadsAt = 0, kTailsAt = 4096, kRingsAt = 2 * 4096;

MessageRings::MessageRings(int fd, uint64_t offset) {
    void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    memory_ = static_cast<unsigned char*>(at);
}

MessageRings::~MessageRings() { munmap(memory_, kBytes); }

std::atomic_ref<uint64_t> MessageRings::head(uint32_t ring) const {
    return std::atomic_ref(reinterpret_cast<uint64_t*>(memory_ + kHeadsAt)[ring]);
}

std::atomic_ref<uint64_t> MessageRings::tail(uint32_t ring) const {
    return std::atomic_ref(reinterpret_cast<uint64_t*>(memory_ + kTailsAt)[ring]);
}

void MessageRings::hold(uint32_t ring) {
    ring_ = ring;
    position_ = head(ring).load(std::memory_order_acquire);   // behind what its last holder sent
}

bool MessageRings::put(std::string_view name, std::string_view text, bool more) {
    const Piece piece{.bytes = static_cast<uint32_t>(sizeof(Piece) + name.size() + text.size()),
                      .name = static_cast<uint16_t>(name.size()),
                      .more = more};
    const uint64_t held = position_ - tail(ring_).load(std::memory_order_acquire);   // the owner has read what is before
    if (held > kRingBytes || piece.bytes > kRingBytes - held) return false;
    copy_in(ring_, position_, &piece, sizeof piece);
    copy_in(ring_, position_ + sizeof piece, name.data(), name.size());
    copy_in(ring_, position_ + sizeof piece + name.size(), text.data(), text.size());
    position_ += piece.bytes;
    head(ring_).store(position_, std::memory_order_release);   // the bytes are there before
    return true;
}

bool MessageRings::has_any() const {
    for (uint32_t ring = 0; ring < kRings; ++ring)
        if (head(ring).load(std::memory_order_relaxed) != rings_[ring].position) return true;
    return false;
}

MessageRings::Taken MessageRings::take() {
    Taken taken;
    for (uint32_t ring = 0; ring < kRings; ++ring) {
        const uint64_t until = head(ring).load(std::memory_order_acquire);
        if (until == rings_[ring].position) continue;
        take_of(ring, until, taken);
        rings_[ring].position = until;
        tail(ring).store(until, std::memory_order_release);   // all is read that the sender writes over now
    }
    return taken;
}

void MessageRings::take_of(uint32_t number, uint64_t until, Taken& taken) {
    Ring& ring = rings_[number];
    for (uint64_t at = ring.position; at != until;) {
        const uint64_t left = until - at;
        Piece piece;
        if (left <= kRingBytes && left >= sizeof piece) copy_out(number, at, &piece, sizeof piece);
        if (piece.bytes < sizeof piece + piece.name || piece.bytes > left || piece.more > 1) {
            taken.nonsense += left;
            ring.begun.clear();
            return;
        }
        Message message{.name = std::string(piece.name, '\0'), .text = {}, .ring = number, .position = at};
        const uint64_t size = piece.bytes - sizeof piece - piece.name, begun = ring.begun.size();
        copy_out(number, at + sizeof piece, message.name.data(), piece.name);
        ring.begun.resize(begun + size);
        copy_out(number, at + sizeof piece + piece.name, ring.begun.data() + begun, size);
        at += piece.bytes;
        if (piece.more) continue;
        message.text = std::exchange(ring.begun, {});
        taken.messages.push_back(std::move(message));
    }
}

void MessageRings::copy_in(uint32_t ring, uint64_t position, const void* from, uint64_t size) {
    unsigned char* const base = memory_ + kRingsAt + ring * kRingBytes;
    const uint64_t at = position % kRingBytes, first = std::min(size, kRingBytes - at);
    memcpy(base + at, from, first);
    memcpy(base, static_cast<const unsigned char*>(from) + first, size - first);
}

void MessageRings::copy_out(uint32_t ring, uint64_t position, void* to, uint64_t size) const {
    const unsigned char* const base = memory_ + kRingsAt + ring * kRingBytes;
    const uint64_t at = position % kRingBytes, first = std::min(size, kRingBytes - at);
    memcpy(to, base + at, first);
    memcpy(static_cast<unsigned char*>(to) + first, base, size - first);
}

}  // namespace peerlane
