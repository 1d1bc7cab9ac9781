#include "share/handle_text.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "share/frames.h"

namespace peerlane {

namespace {

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr uint8_t kNone = 64;

constexpr std::array<uint8_t, 256> values_of_digits() {
    std::array<uint8_t, 256> values{};
    values.fill(kNone);
    for (uint8_t i = 0; i < kNone; ++i) values[static_cast<uint8_t>(kDigits[i])] = i;
    return values;
}
constexpr std::array<uint8_t, 256> kValues = values_of_digits();

constexpr std::array<uint32_t, 256> remainders() {
    std::array<uint32_t, 256> all{};
    for (uint32_t i = 0; i < all.size(); ++i) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0xEDB88320u : 0);
        all[i] = rest;
    }
    return all;
}
constexpr std::array<uint32_t, 256> kRemainders = remainders();

using Bytes = std::array<uint8_t, sizeof(HandleText)>;

Bytes bytes_of(const HandleText& text) {
    Bytes bytes;
    memcpy(bytes.data(), &text, bytes.size());
    return bytes;
}

}  // namespace

uint32_t HandleText::computed_checksum() const {
    const Bytes bytes = bytes_of(*this);
    uint32_t sum = ~uint32_t{0};
    for (size_t i = 0; i < offsetof(HandleText, checksum); ++i) sum = kRemainders[(sum ^ bytes[i]) & 0xFF] ^ sum >> 8;
    return ~sum;
}

bool HandleText::is_whole() const {
    return memcmp(magic, HandleText{}.magic, sizeof magic) == 0 && version == kVersion && checksum == computed_checksum() &&
           slot_and_index >> (kSlotBits + kIndexBits) == 0 && (nonce & kShortNonce) != 0;
}

std::string HandleText::encode() const {
    HandleText whole = *this;
    whole.checksum = computed_checksum();
    const Bytes bytes = bytes_of(whole);
    std::string text(kLength, '\0');
    for (size_t i = 0; i < bytes.size() / 3; ++i) {
        const uint32_t three = uint32_t{bytes[3 * i]} << 16 | uint32_t{bytes[3 * i + 1]} << 8 | bytes[3 * i + 2];
        for (unsigned digit = 0; digit < 4; ++digit) text[4 * i + digit] = kDigits[three >> (18 - 6 * digit) & 63];
    }
    return text;
}

std::optional<HandleText> HandleText::decode(std::string_view text) {
    if (text.size() != kLength) return std::nullopt;
    Bytes bytes;
    for (size_t i = 0; i < bytes.size() / 3; ++i) {
        uint32_t three = 0;
        for (unsigned digit = 0; digit < 4; ++digit) {
            const uint8_t value = kValues[static_cast<uint8_t>(text[4 * i + digit])];
            if (value == kNone) return std::nullopt;
            three = three << 6 | value;
        }
        for (unsigned byte = 0; byte < 3; ++byte) bytes[3 * i + byte] = static_cast<uint8_t>(three >> (16 - 8 * byte));
    }
    HandleText decoded;
    memcpy(&decoded, bytes.data(), bytes.size());
    return decoded;
}

}  // namespace peerlane
