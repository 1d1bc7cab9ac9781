// The host's memory that asynchronous operations read, while the checker's log is written.
//
// A program may not write there until it knows that the operation is over.  NumPy, ctypes and C write without a call of peerlane's, so
// the bytes are compared: as the operation was submitted, and as a thread comes to know of its end.  The scheduler's lock guards it.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "stream/stream.h"

namespace peerlane {

// Rows of bytes; a single one is a range.
struct HostRows {
    const char* host = nullptr;
    uint64_t pitch = 0, width = 0, height = 1;

    uint64_t size() const { return width * height; }
    uint64_t low() const { return reinterpret_cast<uint64_t>(host); }
    uint64_t high() const { return low() + pitch * (height - 1) + width; }
};

class HostSources {
  public:
    // Before `op` runs.  How many times its Python object is held, until it comes back by `let_go`.
    uint32_t submitted(Stream& stream, const Op& op, uint64_t sequence, bool runs_at_once) noexcept;
    // The operation begins.  What came before it may have written what it reads: only from now on the bytes may not change.
    void starting(uint64_t stream, uint64_t sequence);
    bool is_any_late() const { return late_ != 0; }
    // A thread comes to know that the stream has come so far, and no event says so yet.
    void known(uint64_t stream, uint64_t sequence);
    // Some thread may come to know it from now on, which no event will say: what has changed by now is told.
    void may_be_known(uint64_t stream, uint64_t sequence);
    bool is_empty() const { return open_.load(std::memory_order_relaxed) == 0; }
    // Python objects that are held no longer.
    std::vector<void*> let_go;

  private:
    static constexpr uint32_t kMost = 256;
    static constexpr size_t kMostOrders = 256, kFewWriters = 32, kMostPieces = 64;

    struct Source {
        uint64_t stream = 0, sequence = 0;   // stream 0: the slot is free
        HostRows rows;
        Extent* extent = nullptr;            // of pinned memory, whose allocation is `id`
        uint64_t id = 0, digest = 0, time_ns = 0, log = 0;
        uint32_t site = 0, thread = 0;
        OpKind kind = OpKind::copy;
        bool is_late = false;                // its digest is taken as it begins
        bool may_be_known = false;
        void* keep = nullptr;
    };
    // A queued operation that writes there, or (low = high) for which later ones of its stream wait: host functions and whoever records what
    // a stream waits for may write what those read.
    struct Writer {
        StreamPtr stream;
        uint64_t sequence, low, high;

        bool is_over() const { return stream->completed.load(std::memory_order_relaxed) >= sequence; }
    };
    // A stream's operation that comes after another stream's.
    struct Order {
        uint64_t stream, sequence, earlier_stream, earlier_sequence;
    };

    uint32_t look_at(Stream& stream, const Op& op, uint64_t sequence, bool runs_at_once);
    void will_be_written(Stream& stream, uint64_t sequence, uint64_t low, uint64_t high, bool runs_at_once);
    bool is_behind_writer(const Stream& stream, uint64_t low, uint64_t high);
    void add_writer(Stream& stream, uint64_t sequence, uint64_t low, uint64_t high);
    bool watch(const Stream& stream, const Op& op, uint64_t sequence, const HostRows& rows, Extent* extent, bool is_late);
    void compare_and_close(Source& source);
    bool has_changed(const Source& source) const;
    void close(Source& source);

    std::vector<Source> sources_;            // kMost of them, from the first use on
    uint32_t late_ = 0, used_ = 0, next_ = 0;           // slots that were ever used, and the one that is used next
    std::atomic<uint32_t> open_{0};
    std::vector<Writer> writers_;
    size_t most_writers_ = kFewWriters;
    std::vector<Order> orders_;
};

}  // namespace peerlane
