// The short form of a record: words of 8 bytes, with fields as narrow as those of most events.  What does not fit has the long form,
// a Head with its words and spans.  A copy on a stream has 64 bytes here, and 96 there.
//
//   0      units and kShort, kind, flags, op; words, whether there is a word for the stream, and spans: 3, 1 and 4 bits
//   1      site, thread
//   2      nanoseconds since the log began: 48 bits; repeats: 16
//   then   stream: 24 bits, and sequence: 40, if one of them is not 0; the words a, b, c, d
//   then   for each span the block, and size: 24 bits, and offset: 40; of host memory the size: 40 bits, and the address
#pragma once
#include <array>
#include <cstdint>

#include "log/event.h"

namespace peerlane::log {

constexpr uint32_t kShort = uint32_t{1} << 31;   // in the units of a record
constexpr uint32_t kMostShortSpans = 15, kMostShortWords = 3 + 1 + 4 + 2 * kMostShortSpans;

namespace short_form {

constexpr uint64_t kTimeBits = 48, kStreamBits = 24, kSizeBits = 24, kHostSizeBits = 40;
constexpr uint64_t low(uint64_t word, uint64_t bits) { return word & ((uint64_t{1} << bits) - 1); }
constexpr bool fits(uint64_t value, uint64_t bits) { return value >> bits == 0; }

// False: the span needs the long form.
inline bool pack(const Span& span, uint64_t* to) {
    const uint64_t block = span.block & ~Span::kWritten;
    if (block == 0) {
        to[0] = span.size | (span.block & Span::kWritten);
        to[1] = span.offset;
        return fits(span.size, kHostSizeBits);
    }
    to[0] = span.block;
    to[1] = span.size | span.offset << kSizeBits;
    return !fits(block, kHostSizeBits) && fits(span.size, kSizeBits) && fits(span.offset, 64 - kSizeBits);
}

inline Span unpack(const uint64_t* from) {
    const uint64_t block = from[0] & ~Span::kWritten, written = from[0] & Span::kWritten;
    if (fits(block, kHostSizeBits)) return {written, from[1], block};
    return {from[0], from[1] >> kSizeBits, low(from[1], kSizeBits)};
}

}  // namespace short_form

// The number of 8-byte words; 0: the record needs the long form.
inline uint32_t pack(const Head& head, const uint64_t* words, const Span* spans, uint64_t start_ns, std::array<uint64_t, kMostShortWords>& to) {
    using namespace short_form;
    const uint64_t time_ns = head.time_ns - start_ns;
    if (head.spans > kMostShortSpans || (head.flags & kRows) != 0 || !fits(time_ns, kTimeBits) || !fits(head.repeats, 64 - kTimeBits) ||
        !fits(head.stream, kStreamBits) || !fits(head.sequence, 64 - kStreamBits))
        return 0;
    const bool has_stream = (head.stream | head.sequence) != 0;
    uint32_t count = 3;
    if (has_stream) to[count++] = head.stream | head.sequence << kStreamBits;
    for (uint32_t i = 0; i < head.words; ++i) to[count++] = words[i];
    for (uint32_t i = 0; i < head.spans; ++i, count += 2)
        if (!pack(spans[i], &to[count])) return 0;
    to[0] = (count | kShort) | uint64_t{static_cast<uint8_t>(head.kind)} << 32 | uint64_t{head.flags} << 40 | uint64_t{head.op} << 48 |
            uint64_t{head.words | uint32_t{has_stream} << 3 | head.spans << 4} << 56;
    to[1] = head.site | uint64_t{head.thread} << 32;
    to[2] = time_ns | uint64_t{head.repeats} << kTimeBits;
    return count;
}

// False: `count` words are too few for what they say that they have.  `spans`: room for kMostShortSpans.
inline bool unpack(const uint64_t* from, uint64_t count, uint64_t start_ns, Head& head, uint64_t (&words)[4], Span* spans) {
    using namespace short_form;
    if (count < 3) return false;
    const auto counts = static_cast<uint32_t>(from[0] >> 56);
    const bool has_stream = (counts & 8) != 0;
    head = Head{.units = static_cast<uint32_t>(count), .kind = static_cast<Kind>(from[0] >> 32 & 0xff), .flags = static_cast<uint8_t>(from[0] >> 40),
                .op = static_cast<uint8_t>(from[0] >> 48), .words = static_cast<uint8_t>(counts & 7), .spans = counts >> 4,
                .site = static_cast<uint32_t>(from[1]), .thread = static_cast<uint32_t>(from[1] >> 32),
                .repeats = static_cast<uint32_t>(from[2] >> kTimeBits), .time_ns = start_ns + low(from[2], kTimeBits), .stream = 0, .sequence = 0};
    if (head.words > 4 || (head.flags & kRows) != 0 || 3 + uint32_t{has_stream} + head.words + 2 * head.spans > count) return false;
    from += 3;
    if (has_stream) {
        head.stream = low(*from, kStreamBits);
        head.sequence = *from++ >> kStreamBits;
    }
    for (uint32_t i = 0; i < head.words; ++i) words[i] = *from++;
    for (uint32_t i = 0; i < head.spans; ++i, from += 2) spans[i] = unpack(from);
    return true;
}

}  // namespace peerlane::log
