#include "stream/host_bytes.h"

#include <algorithm>
#include <cstring>

#include "memory/fault_guard.h"
#include "stream/host_destinations.h"

namespace peerlane {

namespace {

constexpr uint64_t kLine = 64, kWhole = uint64_t{16} << 10, kEdge = 512, kWindow = 4096, kMostSamples = 2048;
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;

// Eight sums of their own, so that the processor multiplies them side by side.  Each step can be undone: no change of one word is lost.
class Digest {
  public:
    void add(const char* at, uint64_t size) {
        for (; size >= kLine; at += kLine, size -= kLine) {
            uint64_t words[8];
            memcpy(words, at, kLine);
            for (int i = 0; i < 8; ++i) sums_[i] = (sums_[i] ^ words[i]) * kMultiplier;
        }
        for (int i = 0; size != 0; ++i) {
            uint64_t word = 0;
            const uint64_t part = std::min<uint64_t>(size, sizeof word);
            memcpy(&word, at, part);
            sums_[i] = (sums_[i] ^ word) * kMultiplier;
            at += part;
            size -= part;
        }
    }
    uint64_t value() const {
        uint64_t all = 0;
        for (const uint64_t sum : sums_) all = ((all << 7 | all >> 57) ^ sum ^ sum >> 32) * kMultiplier;
        return all;
    }

  private:
    uint64_t sums_[8] = {1, 2, 3, 4, 5, 6, 7, 8};
};

// Some bytes of the rows as if they lay side by side, each row's part by itself.
void add_bytes(Digest& digest, const HostRows& rows, uint64_t from, uint64_t size) {
    if (rows.height == 1) return digest.add(rows.host + from, size);   // without divisions, which take longer than the sums
    while (size != 0) {
        const uint64_t row = from / rows.width, column = from % rows.width;
        const uint64_t part = std::min(size, rows.width - column);
        digest.add(rows.host + row * rows.pitch + column, part);
        from += part;
        size -= part;
    }
}

// All of what is small.  Of what is large both ends and a line of each window, at a place that differs from window to window: a
// program that writes a block or a column changes some of them.
uint64_t digest_of(const HostRows& rows) {
    Digest digest;
    const uint64_t size = rows.size();
    if (size <= kWhole) {
        add_bytes(digest, rows, 0, size);
        return digest.value();
    }
    add_bytes(digest, rows, 0, kEdge);
    add_bytes(digest, rows, size - kEdge, kEdge);
    const uint64_t samples = std::min(size / kWindow, kMostSamples), window = size / samples, lines = window / kLine;
    for (uint64_t i = 0; i < samples; ++i) add_bytes(digest, rows, i * window + ((i + 1) * kMultiplier >> 40) * lines / (uint64_t{1} << 24) * kLine, kLine);
    return digest.value();
}

}  // namespace

bool read_digest(const HostRows& rows, uint64_t& digest) {
    rearm_fault_handlers(true);
    const MovesBytes not_the_program;
    FaultGuard guard;
    return guarded(guard, [&] { digest = digest_of(rows); });
}

bool is_of_host(const char* host, Extent*& extent) {
    Heap& heap = Heap::get();
    const uint64_t offset = reinterpret_cast<uint64_t>(host) - heap.space().shadow_base();
    extent = nullptr;
    if (!heap.space().is_open() || offset >= heap.space().window()) return true;
    uint64_t within;
    extent = const_cast<Extent*>(heap.extent_of_host(offset, within));
    return extent && extent->device == kHost;
}

}  // namespace peerlane
