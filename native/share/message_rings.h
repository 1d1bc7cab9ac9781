// Rings by which other processes send messages to one: each sender holds a ring, and only the owner reads.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peerlane {

// Lies in shared memory that both may write anywhere at any time: every number that is read there is checked before it is
// used, and each side keeps the place that only it moves.  One thread at a time uses an object.
class MessageRings {
  public:
    static constexpr uint32_t kRings = 64;
    static constexpr uint64_t kRingBytes = uint64_t{1} << 20;
    static constexpr uint64_t kBytes = 2 * 4096 + kRings * kRingBytes;
    static constexpr uint64_t kMostAtOnce = kRingBytes / 4;   // bytes of a piece's name and text

    struct Message {
        std::string name, text;
        uint32_t ring = 0;
        uint64_t position = 0;   // of its last piece
    };

    // `fd` has `offset` + kBytes bytes, which stay.  Throws std::system_error if they cannot be mapped.
    MessageRings(int fd, uint64_t offset);
    MessageRings(const MessageRings&) = delete;
    ~MessageRings();

    // The sender's side.  From now on this object sends by this ring, which no other process holds.
    void hold(uint32_t ring);
    uint64_t position() const { return position_; }   // of the next piece
    // False: it has no room now.  `more`: the message goes on with the next piece.
    bool put(std::string_view name, std::string_view text, bool more);

    // The owner's side.
    struct Taken {
        std::vector<Message> messages;
        uint64_t nonsense = 0;   // bytes that are not messages; they are dropped
    };
    bool has_any() const;
    Taken take();

  private:
    struct Ring {
        uint64_t position = 0;
        std::string begun;   // the pieces of a message that is not there as a whole
    };
    struct Piece {   // before its bytes
        uint32_t bytes = 0;
        uint16_t name = 0, more = 0;
    };

    std::atomic_ref<uint64_t> head(uint32_t ring) const;
    std::atomic_ref<uint64_t> tail(uint32_t ring) const;
    void copy_in(uint32_t ring, uint64_t position, const void* from, uint64_t size);
    void copy_out(uint32_t ring, uint64_t position, void* to, uint64_t size) const;
    void take_of(uint32_t ring, uint64_t until, Taken& taken);

    unsigned char* memory_ = nullptr;
    uint32_t ring_ = 0;
    uint64_t position_ = 0;
    Ring rings_[kRings];
};

}  // namespace peerlane
