// The text form of a handle: 48 bytes in URL-safe base64, little-endian.
//
//     0   magic "PL"      2  version     3  kind
//     4   node's home (8) 12 slot (low 10 bits) and index (the next 17), the rest 0 (8)
//     20  nonce (8)       28 size (8)    36 pid (4)    40 start time, low half (4)    44 CRC32 of what is before (4)
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace peerlane {

struct HandleText {
    static constexpr size_t kLength = 64;
    static constexpr uint8_t kVersion = 1;
    static constexpr unsigned kSlotBits = 10, kIndexBits = 17;

    char magic[2] = {'P', 'L'};
    uint8_t version = kVersion;
    uint8_t kind = 0;
    uint64_t node = 0;
    uint64_t slot_and_index = 0;
    uint64_t nonce = 0;
    uint64_t size = 0;
    uint32_t pid = 0, start = 0;
    uint32_t checksum = 0;

    uint32_t slot() const { return slot_and_index & ((1u << kSlotBits) - 1); }
    uint32_t index() const { return static_cast<uint32_t>(slot_and_index >> kSlotBits); }
    uint32_t computed_checksum() const;
    // Whether this release reads it: what it claims may still be false.
    bool is_whole() const;

    std::string encode() const;   // with the right checksum
    // Nothing: its length or a character is wrong.
    static std::optional<HandleText> decode(std::string_view text);
} __attribute__((packed));

static_assert(sizeof(HandleText) == HandleText::kLength / 4 * 3);

}  // namespace peerlane
