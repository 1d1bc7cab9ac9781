// How fast a rank copies host bytes to and from slots, by the size of the call.  Bytes that another processor has just written come
// fast where the two share a cache.  Elsewhere they take ten times as long, and then calls of the system that read the peer's memory
// are faster.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace peerlane {

class SlotPace {
  public:
    enum Copy : uint8_t { fill, read };
    static constexpr uint64_t kShortest = uint64_t{16} << 10;   // bytes of a rank's part

    // A call with parts of `longest` bytes has copied a part or a piece of it.
    void note(Copy copy, uint64_t longest, uint64_t bytes, uint64_t nanoseconds) {
        uint64_t& pace = of(longest).paces[copy];
        const uint64_t now = std::min((nanoseconds << 10) / bytes, kSlowest);
        pace = (kWeight * pace + now) / (kWeight + 1);   // other work of the processor makes single copies slow
    }
    // Whether the next call should do without slots.  If it should, some calls in a row take them now and then, to see whether they
    // are fast again.  `is_piped`: the copies to slots and those from them are made at the same time.  `threads`: that make the calls.
    bool avoids_slots(uint64_t longest, bool is_piped, unsigned threads) {
        Size& size = of(longest);
        const auto [filling, reading] = size.paces;
        const uint64_t by_slots = is_piped ? std::max(filling, reading) : filling + reading;
        const uint64_t by_calls = kCopyByCall / threads + (kCall << 10) / longest;
        return by_slots > by_calls && ++size.avoided % kPeriod < kPeriod - kTries;
    }
    static bool serves(uint64_t longest) { return longest >= kShortest; }

  private:
    static constexpr uint64_t kCopyByCall = 80, kSlowest = 200;   // nanoseconds for a KiB
    static constexpr uint64_t kCall = 2'000;                      // nanoseconds
    static constexpr uint64_t kWeight = 7, kPeriod = 4096, kTries = 24;   // calls
    static constexpr unsigned kSizes = 9, kFirst = std::bit_width(kShortest);   // from 4 MiB on all are one size
    struct Size {
        std::array<uint64_t, 2> paces{};   // of each kind of copy
        uint64_t avoided = 0;              // calls that would rather have no slots
    };
    Size& of(uint64_t longest) { return sizes_[std::min(static_cast<unsigned>(std::bit_width(longest)) - kFirst, kSizes - 1)]; }

    std::array<Size, kSizes> sizes_{};   // by the power of two
};

}  // namespace peerlane
