// The host's memory that asynchronous operations read, while the checker's log is written.
//
// A program may not write there until it knows that the operation is over.  NumPy, ctypes and C write without a call of peerlane's, so
// the bytes are compared: as the operation was submitted, and as a thread comes to know of its end.  The scheduler's lock guards it.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "log/log.h"
#include "stream/host_bytes.h"
#include "stream/host_destinations.h"
#include "stream/stream.h"

namespace peerlane {

// Whether an operation reads memory of the host that nothing keeps alive: it may be freed as soon as it was read.
inline bool is_source_of_nobody(const Op& op) {
    Extent* extent;
    if (op.kind == OpKind::file) {
        const auto& pieces = static_cast<const Batch*>(op.extra)->pieces;
        return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) { return piece.src && is_of_host(piece.src, extent) && !extent; });
    }
    return (op.kind == OpKind::copy || op.kind == OpKind::reduce) && !op.keep && is_of_host(op.src, extent) && !extent;
}

inline bool writes_to_host(const Op& op) {
    bool is_any = false;
    each_of_host_written_by(op, [&](const HostRows&) {
        is_any = true;
        return false;
    });
    return is_any;
}

class HostSources {
  public:
    // Whether there is time to see who touches what the operation will write: then it may not run at once.
    bool may_hold_back(const Op& op, bool is_repeatable) { return log::wanted() && (writes_to_host(op) || is_source_of_nobody(op)) && destinations_.has_time(is_repeatable); }
    struct Watched {
        uint32_t references = 0;   // how many times its Python object is held, until it comes back by `let_go`
        bool is_held_back = false; // until somebody waits, or some time has passed
    };
    // Before `op` runs.
    Watched submitted(Stream& stream, const Op& op, uint64_t sequence, bool runs_at_once, bool may_hold_back) noexcept;
    // The operation begins.  What came before it may have written what it reads: only from now on the bytes may not change.
    void starting(uint64_t stream, uint64_t sequence);
    bool is_any_late() const { return late_ != 0 || !destinations_.is_empty(); }
    void over(uint64_t stream, uint64_t upto) {
        if (!destinations_.is_empty()) [[unlikely]] destinations_.over(stream, upto);
    }
    void before_fork() noexcept { destinations_.let_all_in(); }
    // A thread comes to know that the stream has come so far, and no event says so yet.
    void known(uint64_t stream, uint64_t sequence);
    // From now on some thread may know it without an event: bytes that have changed by now are reported.
    void may_be_known(uint64_t stream, uint64_t sequence);
    bool is_empty() const { return open_.load(std::memory_order_relaxed) == 0 && !destinations_.has_changed(); }
    // The log ends: tell what has changed of operations whose end no thread came to know, and how many were not watched.
    void end() noexcept;
    // Python objects that are held no longer.
    std::vector<void*> let_go;

  private:
    static constexpr uint32_t kMost = 256;
    static constexpr size_t kMostOrders = 256, kMostUnlogged = 256, kFewWriters = 32, kMostPieces = 64;
    static constexpr uint32_t kMostDestinations = 16;
    static constexpr uint64_t kFewBytes = 4096;

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
        bool only_reads = false;

        bool is_over() const { return stream->completed.load(std::memory_order_relaxed) >= sequence; }
    };
    // A stream's operation that comes after another stream's.
    struct Order {
        uint64_t stream, sequence, earlier_stream, earlier_sequence;
    };

    void look_at(Watched& watched, Stream& stream, const Op& op, uint64_t sequence, bool runs_at_once, bool may_hold_back);
    void will_be_written(Stream& stream, uint64_t sequence, uint64_t low, uint64_t high, bool runs_at_once);
    bool is_behind_writer(const Stream& stream, uint64_t low, uint64_t high, bool also_readers = false);
    void add_writer(Stream& stream, uint64_t sequence, uint64_t low, uint64_t high, bool only_reads = false);
    bool is_let_on(const Mark& mark) const;
    bool watch_destination(const Stream& stream, const Op& op, uint64_t sequence, bool may_hold_back);
    bool watch(const Stream& stream, const Op& op, uint64_t sequence, const HostRows& rows, Extent* extent, bool is_late);
    enum End : size_t { read, written };
    void not_watched(End end, uint64_t stream, uint64_t sequence, OpKind kind, uint32_t site) noexcept;
    void count_unwatched(End end) noexcept;
    void compare_and_close(Source& source);
    bool has_changed(const Source& source);
    bool read_in_time(const HostRows& rows, uint64_t& digest);
    void close(Source& source);

    HostDestinations destinations_;
    SpareTime time_;                         // for digests of more than a few bytes
    struct Unwatched {
        uint64_t all = 0, unlogged = 0, stream = 0, sequence = 0;   // the newest one
        OpKind kind = OpKind::copy;
        uint32_t site = 0;
    };
    Unwatched unwatched_[2];
    std::vector<Source> sources_;            // kMost of them, from the first use on
    uint32_t late_ = 0, used_ = 0, next_ = 0;           // slots that were ever used, and the one that is used next
    std::atomic<uint32_t> open_{0};
    std::vector<Writer> writers_;
    size_t most_writers_ = kFewWriters;
    std::vector<Order> orders_;
};

}  // namespace peerlane
