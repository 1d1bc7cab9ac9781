// What an operation touches, as observers are told: by block, not by address.
#include "stream/descriptor.h"
#include "stream/scheduler.h"

namespace peerlane {

namespace {
constexpr size_t kTraceLength = 1 << 14;
}

void add_host_span(std::vector<Seen::Span>& spans, const char* host, uint64_t size, bool written) {
    // Two mappings of one block are the same bytes: spans are told by block.
    while (size != 0) {
        const Spot spot = Heap::get().spot_of(host);
        const uint64_t part = std::min(size, spot.left);
        if (part == 0) return;
        spans.push_back({spot.block, spot.offset, part, written});
        host += part;
        size -= part;
    }
}

void add_spans(std::vector<Seen::Span>& spans, const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
        add_host_span(spans, piece.dst, piece.size, true);
        add_host_span(spans, piece.src, piece.size, false);
    }
}

void add_spans(std::vector<Seen::Span>& spans, const Op& op) {
    switch (op.kind) {
        case OpKind::copy:
        case OpKind::copy_2d:
            add_host_span(spans, op.dst, op.size, true);
            add_host_span(spans, op.src, op.src_size(), false);
            return;
        case OpKind::reduce:
            add_host_span(spans, op.dst, op.size, true);
            add_host_span(spans, op.dst, op.size, false);
            add_host_span(spans, op.src, op.size, false);
            return;
        case OpKind::fill:
        case OpKind::write_value:
            add_host_span(spans, op.dst, op.size, true);
            return;
        case OpKind::wait_value:
            add_host_span(spans, op.dst, op.size, false);
            return;
        case OpKind::free:
            add_host_span(spans, Heap::get().host_of(op.dst_extent, 0), op.dst_extent->size, true);
            return;
        case OpKind::batch:
            add_spans(spans, static_cast<const Batch*>(op.extra)->pieces);
            return;
        case OpKind::descriptor:
            add_host_span(spans, op.dst, static_cast<const Launch*>(op.extra)->table_size, false);
            return;
        default:
            return;
    }
}

void add_signals(Seen& seen, const Op& op, bool started) {
    if (op.kind == OpKind::notify || op.kind == OpKind::wait_notify) {   // which record it is turns out when it starts
        seen.notify = op.notify->id;
        if (started && op.kind == OpKind::notify) seen.record = op.notify->signal().recorded() + 1;
        if (started && op.kind == OpKind::wait_notify) seen.record = op.notify->signal().consumed.load();
    }
    if (op.kind == OpKind::record || op.kind == OpKind::wait) {   // an event is known by the place of its record
        seen.notify = op.mark->stream_id;
        seen.record = op.mark->sequence;
    }
}

void Scheduler::note_time(Stream& stream, uint64_t sequence, const Op& op, uint64_t start_ns) {
    const Traced entry{sequence, stream.job ? stream.job->task.size * stream.job->task.height : op.size, start_ns, now_ns(),
                       op.kind};
    or_lose([&] {
        if (stream.trace.size() < kTraceLength)
            stream.trace.push_back(entry);
        else
            stream.trace[stream.traced % kTraceLength] = entry;
        ++stream.traced;
    });
}

void Scheduler::note_started(const Stream& stream, uint64_t sequence, const Op& op, const Job* job) {
    or_lose([&] {
        Seen seen{.order = next_order(), .stream = stream.id, .sequence = sequence, .kind = op.kind};
        add_spans(seen.spans, op);
        if (job && op.kind == OpKind::descriptor && job->task.pieces) add_spans(seen.spans, *job->task.pieces);
        add_signals(seen, op, true);
        seen_.push_back(std::move(seen));
    });
}

void Scheduler::note(Seen seen) {
    Lock lock(mutex_);
    seen_.push_back(std::move(seen));
}

std::vector<Seen> Scheduler::take_seen() {
    Lock lock(mutex_);
    return std::exchange(seen_, {});
}

std::vector<Traced> Scheduler::take_trace(Stream& stream, uint64_t& lost) {
    Lock lock(mutex_);
    lost = stream.traced - stream.trace.size();
    std::vector<Traced> found = std::exchange(stream.trace, {});   // the ring's memory goes with it
    const size_t oldest = found.empty() ? 0 : stream.traced % found.size();
    std::rotate(found.begin(), found.begin() + static_cast<long>(oldest), found.end());
    stream.traced = 0;
    return found;
}

}  // namespace peerlane
