// The host's memory that asynchronous operations write, while the checker's log is written.
//
// A program may not touch it until it knows that the operation is over.  Whole pages of it are out of reach from the submission on until
// the operation begins, which waits for a while: who touches them faults, is logged with its line, and goes on.  The other bytes are compared
// as the operation begins.  The scheduler's lock guards all but the fault's handler.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "stream/host_bytes.h"
#include "stream/operation.h"

namespace peerlane {

struct Stream;

// Call with each run of the host's bytes that an operation writes, until it returns false.
template <class Visit>
void each_of_host_written_by(const Op& op, const Visit& visit) {
    Extent* extent;
    const auto see = [&](const HostRows& rows) { return rows.size() == 0 || !is_of_host(rows.host, extent) || visit(rows); };
    switch (op.kind) {
        case OpKind::copy:
        case OpKind::fill:
        case OpKind::reduce:
            see({op.dst, op.size, op.size});
            return;
        case OpKind::copy_2d: {
            const auto& shape = static_cast<const Rectangle&>(*op.extra);
            if (shape.width != 0 && shape.height != 0) see({op.dst, shape.dst_pitch, shape.width, shape.height});
            return;
        }
        case OpKind::batch:
        case OpKind::file:
            for (const Piece& piece : static_cast<const Batch*>(op.extra)->pieces)
                if (piece.dst && !see({piece.dst, piece.size, piece.size})) return;
            return;
        case OpKind::stepwise:
            for (const auto& rows : static_cast<const Stepwise*>(op.extra)->watched())
                if (rows.is_written && !see({rows.host, rows.pitch, rows.width, rows.height})) return;
            return;
        default:
            return;
    }
}

class HostDestinations {
  public:
    HostDestinations();

    // Whether there is time to watch what an operation writes.  `is_repeatable`: the answer may not depend on time.
    bool has_time(bool is_repeatable) { return is_repeatable || time_.is_left(); }
    // Nobody may touch the rows until the operation starts.
    enum class Seen : uint8_t { nothing, writes, touches };
    Seen watch(const Stream& stream, const Op& op, uint64_t sequence, const HostRows& rows) noexcept { return watch(stream, op, sequence, rows, true); }
    // Nobody may change what it will read until then.
    Seen watch_source(const Stream& stream, const Op& op, uint64_t sequence, const HostRows& rows) noexcept { return watch(stream, op, sequence, rows, false); }
    // The operation begins, or will never run.
    void starting(uint64_t stream, uint64_t sequence);
    void over(uint64_t stream, uint64_t upto);
    void let_all_in() noexcept;                // before a fork
    bool is_empty() const { return open_ == 0; }
    // A thread comes to know that the stream has come so far: changes before it began are logged with its line.
    void known(uint64_t stream, uint64_t sequence);
    void end();                                // no thread will
    bool has_changed() const { return has_changed_.load(std::memory_order_relaxed); }

    struct Watched {
        uint64_t stream = 0, sequence = 0, time_ns = 0, log = 0;
        uint32_t site = 0, thread = 0;
        bool is_written = true;
        OpKind kind = OpKind::copy;
        HostRows rows;
        HostRows edges[2];                     // what lies beside the pages
        uint64_t lead = 0;                     // from where the rows lie on to where the program sees them
    };

  private:
    Seen watch(const Stream& stream, const Op& op, uint64_t sequence, const HostRows& rows, bool is_written) noexcept;
    template <class IsKnown>
    void log_changed(const IsKnown& is_known);

    uint32_t open_ = 0;
    std::vector<Watched> changed_;
    std::atomic<bool> has_changed_{false};
    SpareTime time_;
};

// The line of the program at which the calling thread touches so many bytes, in the handler of a fault; `context` is the handler's.  0: it
// is not known, or waits there for the bytes in a loop.
using FindSite = uint32_t (*)(void* context, uint64_t size, bool is_write);
inline std::atomic<FindSite> site_of_touch{nullptr};

// While it lives, the calling thread moves bytes of operations: it is not the program that touches them.
class MovesBytes {
  public:
    MovesBytes() { ++depth; }
    ~MovesBytes() { --depth; }
    MovesBytes(const MovesBytes&) = delete;

    [[gnu::tls_model("initial-exec")]] static inline thread_local constinit uint32_t depth = 0;
};

// The bytes that the calling thread's last view has logged: a touch of them needs no second event.
struct LoggedByView {
    uintptr_t low = 0, high = 0;
};
[[gnu::tls_model("initial-exec")]] inline thread_local constinit LoggedByView logged_by_view;

}  // namespace peerlane
