// What two processes of different machines send each other: a header of fixed size, and for some kinds bytes behind it.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>

namespace peerlane::net {

enum class FrameKind : uint8_t {
    write = 1,   // bytes for `memory`, `at`
    scatter,     // `detail` entries, and their bytes one behind the other, for `memory`
    reduce,      // bytes to combine into `memory`, `at`, by reduction `detail`
    read,        // asks for `size` bytes of `memory` from `at` on
    gather,      // `detail` entries: asks for `size` bytes of `memory` in all
    notify,      // nothing but the record; in the sender's event log it is operation `size`, 0: none, of stream `at`
    data,        // the answer to a read or gather: its lane and sequence
    ack,         // `detail` entries of Acknowledged, or only the one of the header
    closed,      // the sender's end was closed, and all its operations are over; `detail` is not 0: it was given up, and
                 // what is under way is lost
    open,        // where the sender is reached: the numbers of its process and of its end, and the secret of that, are `sequence`,
                 // `at` and `size`; the bytes are its address
    ping,        // the sender's process is there, for no channel: `secret` is the number of the receiver's process, `at` and the bytes
                 // are the number and the address of the sender's
};

// Both ends store numbers with the lowest byte first.  Whoever reads one checks each field: anybody may have sent it.
struct Frame {
    static constexpr uint32_t kMagic = 0x31464c50;   // with the version
    static constexpr uint8_t kGoesOn = 1;            // carried out also if one before it was refused

    uint32_t magic = kMagic;
    FrameKind kind{};
    uint8_t flags = 0;
    uint16_t unused = 0;
    uint64_t channel = 0;       // the receiver's number of its end, and the secret of the channel
    uint64_t secret = 0;
    uint64_t sequence = 0;      // in its lane, from 1; 0: it is in none
    uint32_t lane = 0;
    uint32_t epoch = 0;         // of the lane: it begins anew after a refusal
    uint64_t acked = 0;         // frames of the other direction, in lane `acked_lane` - 1, that are over
    uint32_t acked_lane = 0;    // 0: none
    uint32_t memory = 0;
    uint64_t at = 0, size = 0;
    uint32_t notify = 0;        // the number of what is recorded when the bytes are there, plus 1; 0: nothing
    uint32_t detail = 0;

    // Whether the bytes are a frame of this version, of a known kind.
    static std::optional<Frame> decode(const void* bytes, uint64_t size) {
        Frame frame;
        if (size != sizeof frame) return std::nullopt;
        memcpy(&frame, bytes, sizeof frame);
        const bool is_known = frame.kind >= FrameKind::write && frame.kind <= FrameKind::ping;
        if (frame.magic != kMagic || !is_known || frame.unused != 0 || (frame.flags & ~kGoesOn) != 0) return std::nullopt;
        return frame;
    }
};
static_assert(sizeof(Frame) == 80);

// Why a frame was refused.  The numbers are part of the protocol.
enum class FarWhy : uint32_t {
    none,
    out_of_bounds,    // the bytes do not lie in the memory
    taken_back,       // its owner took the memory back
    freed,            // the memory is gone
    read_only,
    no_such_memory,
    no_such_notify,
    notify_doubled,   // a strict notify was not consumed yet
    notifies_full,    // the completion queue is full
    fault,            // the bytes could not be touched
    no_room,          // the system has no memory for what must be kept meanwhile
    not_allowed,      // no device has the right to the mapping
    cancelled,        // one before it in its lane was refused
    lost,             // never sent: the process or its machine is gone
    last = lost,
};

struct Acknowledged {
    uint32_t lane = 0, epoch = 0;
    uint64_t sequence = 0;   // all up to here are over
    uint64_t refused = 0;    // the first that was refused in this epoch; 0: none
    FarWhy why = FarWhy::none;
    uint32_t notify = 0;     // of notify_doubled and notifies_full
};
static_assert(sizeof(Acknowledged) == 32);

struct FarEntry {   // of scatter and gather: where in the memory, and bytes
    uint64_t at, size;
};

}  // namespace peerlane::net
