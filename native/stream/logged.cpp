#include "stream/logged.h"

#include <map>
#include <mutex>
#include <utility>

#include "share/shared_signal.h"
#include "stream/descriptor.h"
#include "stream/far_operation.h"
#include "stream/history.h"
#include "stream/scheduler.h"

namespace peerlane {

namespace {

constexpr uint64_t kMostRowsApart = 1 << 16;

bool is_event(const Op& op) { return op.notify->kind == NotifyKind::level; }

log::Event event_of(log::Kind kind, const Stream& stream, uint64_t sequence, const Op& op) {
    return {.kind = kind, .op = static_cast<uint8_t>(op.kind), .stream = stream.id, .sequence = sequence};
}

// A record or a wait of a line, with the number once it is known.
log::Event event_of_line(const Stream& stream, uint64_t sequence, const Op& op, uint64_t number) {
    const auto [bank, line] = line_address(*op.notify);
    const bool records = op.kind == OpKind::notify;
    log::Event event = event_of(records ? log::Kind::notify : log::Kind::notify_wait, stream, sequence, op);
    event.a = bank;
    if (is_event(op)) {
        event.kind = records ? log::Kind::event_record : log::Kind::event_wait;
        event.flags = log::kShared;
        event.b = op.notify->target;
        return event;
    }
    event.b = line;
    event.c = number;
    event.d = log::context.channel;
    return event;
}

// The notifies that are logged as other streams': by their own stream and number.
struct Others {
    using Position = std::pair<uint64_t, uint64_t>;
    std::mutex mutex;
    std::map<Position, Position> positions;

    static Others& get() {
        static auto& others = *new Others;
        return others;
    }
};

}  // namespace

// A notify that is logged as another stream's, which is submitted already.
static Logged log_as_another(const Stream& stream, uint64_t sequence) noexcept {
    try {
        std::lock_guard lock(Others::get().mutex);
        Others::get().positions[{stream.id, sequence}] = {log::context.stream, log::context.sequence};
        return Logged::as_another;
    } catch (const std::bad_alloc&) {
        log::drop();
        return Logged::no;
    }
}

void add_span(log::Spans& spans, const char* host, uint64_t size, bool written) {
    // Two mappings of one block are the same bytes, so spans name the block.
    while (size != 0) {
        const Spot spot = Heap::get().spot_of(host);
        const uint64_t part = std::min(size, spot.left);
        if (part == 0) return;
        spans.add(spot.block, spot.offset, part, written);
        host += part;
        size -= part;
    }
}

void add_spans(log::Spans& spans, const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
        if (piece.dst) add_span(spans, piece.dst, piece.size, true);
        if (piece.src) add_span(spans, piece.src, piece.size, false);
    }
}

void add_rows(log::Spans& spans, const char* host, uint64_t pitch, uint64_t width, uint64_t height, bool written) {
    if (width == 0 || height == 0) return;
    const uint64_t mark = written ? log::Span::kWritten : 0, whole = pitch * (height - 1) + width;
    const Spot spot = Heap::get().spot_of(host);
    if (spot.left >= whole) {
        spans.add({spot.block | mark, spot.offset, whole}, {pitch, width, height});
        return;
    }
    const uint64_t rows = height <= kMostRowsApart ? height : 1, length = height <= kMostRowsApart ? width : whole;
    for (uint64_t row = 0; row < rows; ++row) {
        const char* at = host + row * pitch;
        for (uint64_t left = length; left != 0;) {
            const Spot part = Heap::get().spot_of(at);
            const uint64_t size = std::min(left, part.left);
            if (size == 0) return;
            spans.add({part.block | mark, part.offset, size}, {size, size, 1});
            at += size;
            left -= size;
        }
    }
}

void Stepwise::add_spans(log::Spans& spans) const {
    add_span(spans, written().host, written().size, true);
    add_span(spans, read().host, read().size, false);
}

LineAddress line_address(const Notify& notify) {
    if (notify.far_bank != 0) return {notify.far_bank, notify.far_line};
    const SharedSignal* const shared = notify.shared();
    if (!shared) return {0, notify.id};
    return {shared->file_number() ^ log::machine.load(std::memory_order_relaxed), notify.number_in_bank()};
}

namespace {

// An observer gets the bytes between the rows of a rectangle too, and a reduction's target as read.
void add_spans(log::Spans& spans, const Op& op, uint8_t by) {
    switch (op.kind) {
        case OpKind::copy_2d:
            if (by == log::kChecker) {
                const auto& shape = static_cast<const Rectangle&>(*op.extra);
                add_rows(spans, op.dst, shape.dst_pitch, shape.width, shape.height, true);
                add_rows(spans, op.src, shape.src_pitch, shape.width, shape.height, false);
                return;
            }
            [[fallthrough]];
        case OpKind::copy:
        case OpKind::reduce:
            add_span(spans, op.dst, op.size, true);
            if (op.kind == OpKind::reduce && by == log::kObserver) add_span(spans, op.dst, op.size, false);
            add_span(spans, op.src, op.src_size(), false);
            return;
        case OpKind::fill:
        case OpKind::write_value:
            add_span(spans, op.dst, op.size, true);
            return;
        case OpKind::wait_value:
            add_span(spans, op.dst, op.size, false);
            return;
        case OpKind::free:
            add_span(spans, Heap::get().host_of(op.dst_extent, 0), op.dst_extent->size, true);
            return;
        case OpKind::batch:
        case OpKind::file:
            add_spans(spans, static_cast<const Batch*>(op.extra)->pieces);
            return;
        case OpKind::stepwise:
            return static_cast<const Stepwise*>(op.extra)->add_spans(spans);
        case OpKind::descriptor:
            add_span(spans, op.dst, static_cast<const Launch*>(op.extra)->table_size, false);
            return;
        default:
            return;
    }
}

// `number`: of a notify's record.
log::Event seen(log::Kind moment, uint64_t stream, uint64_t sequence, const Op& op, uint64_t number = 0) {
    log::Event event{.kind = moment, .op = static_cast<uint8_t>(op.kind), .stream = stream, .sequence = sequence};
    if (moment != log::Kind::op_submitted) event.site = 0;
    if (op.kind == OpKind::notify || op.kind == OpKind::wait_notify) {
        event.a = op.notify->id;
        event.b = number;
    } else if (op.kind == OpKind::record || op.kind == OpKind::wait) {
        event.a = op.mark->stream_id;
        event.b = op.mark->sequence;
    }
    return event;
}

template <class Add>
void write_seen(log::Event event, const Add& add) noexcept {
    try {
        log::Spans spans;
        add(spans);
        event.spans = &spans;
        log::write(event, log::kObserver);
    } catch (const std::bad_alloc&) {
        log::drop(log::kObserver);
    }
}

}  // namespace

Logged log_submitted(const Stream& stream, const Op& op, uint64_t sequence, bool runs_now) noexcept {
    if (log::is_logging()) {
        const Past past{stream.id, sequence, log::context.site, op.kind};
        // What is queued behind a wait does not say how it came to it.
        if (stream.park == Park::none) note_past(PastOf::stream, stream.id, past);
        if (op.kind == OpKind::notify || op.kind == OpKind::wait_notify) note_past(PastOf::notify, op.notify->id, past);
    }
    if (log::is_read(log::kObserver))
        write_seen(seen(log::Kind::op_submitted, stream.id, sequence, op), [&](log::Spans& spans) { add_spans(spans, op, log::kObserver); });
    if (op.kind == OpKind::wait && log::is_read(log::kTrace))
        log::write({.kind = log::Kind::event_wait, .stream = stream.id, .sequence = sequence, .a = op.mark->stream_id, .b = op.mark->sequence},
                   log::kTrace);
    if (log::wanted()) return runs_now ? Logged::when_it_runs : log_access(stream, op, sequence);
    if (log::context.stream == 0) return Logged::no;
    if (op.kind == OpKind::far) static_cast<FarOperation*>(op.extra)->log_as(log::context.stream, log::context.sequence);
    return op.kind == OpKind::notify ? log_as_another(stream, sequence) : Logged::no;
}

void log_started(const Stream& stream, uint64_t sequence, const Op& op, const std::vector<Piece>* pieces) noexcept {
    const uint64_t number = op.kind == OpKind::wait_notify ? op.notify->signal().consumed.load() : 0;
    write_seen(seen(log::Kind::op_started, stream.id, sequence, op, number), [&](log::Spans& spans) {
        add_spans(spans, op, log::kObserver);
        if (pieces) add_spans(spans, *pieces);
    });
}

void log_ended(const Stream& stream, uint64_t sequence, const Op& op, uint64_t bytes, uint64_t start_ns) noexcept {
    log::write({.kind = log::Kind::op_ended, .op = static_cast<uint8_t>(op.kind), .stream = stream.id, .sequence = sequence, .a = start_ns,
                .b = bytes, .c = stream.device, .site = 0},
               log::kTrace);
}

void log_seen_now(OpKind kind, const log::Spans& spans) noexcept {
    log::Event event{.kind = log::Kind::op_submitted, .op = static_cast<uint8_t>(kind), .spans = &spans};
    log::write(event, log::kObserver);
    event.kind = log::Kind::op_started;
    event.site = 0;
    log::write(event, log::kObserver);
}

Logged log_access(const Stream& stream, const Op& op, uint64_t sequence) noexcept {
    try {
        log::Spans spans;
        add_spans(spans, op, log::kChecker);
        log::Event event = event_of(log::Kind::access, stream, sequence, op);
        event.spans = &spans;
        event.a = log::context.channel;
        event.flags = log::context.flags;
        switch (op.kind) {
            case OpKind::wait_value:
                event.kind = log::Kind::value_wait;
                event.a = 0;
                break;
            case OpKind::free:
                event.kind = log::Kind::freed;
                event.a = op.value;
                break;
            case OpKind::record:
                event.kind = log::Kind::event_record;
                event.a = 0;
                break;
            case OpKind::wait:
                event.kind = log::Kind::event_wait;
                event.a = op.mark->stream_id;
                event.b = op.mark->sequence;
                break;
            case OpKind::notify:
            case OpKind::wait_notify:
                event = event_of_line(stream, sequence, op, 0);
                break;
            case OpKind::callback:
                event.kind = log::Kind::callback;
                event.a = 0;
                break;
            case OpKind::fill:
            case OpKind::write_value:
                event.b = op.value;
                event.c = op.width;
                break;
            case OpKind::far:
                static_cast<FarOperation*>(op.extra)->describe(event, spans);
                break;
            case OpKind::stepwise:
                if (static_cast<const Stepwise*>(op.extra)->has_late_spans()) event.flags |= log::kLate;
                break;
            default:
                break;
        }
        if (event.kind != log::Kind::access && event.kind != log::Kind::value_wait) event.flags &= log::kShared;
        if (event.kind == log::Kind::freed) event.flags = log::context.of_free;
        log::write(event);
        return Logged::submitted;
    } catch (const std::bad_alloc&) {
        log::drop();
        return Logged::no;
    }
}

void log_notified(log::Writing& writing, const Stream& stream, uint64_t sequence, const Op& op, uint64_t number) noexcept {
    if (log::is_read(log::kObserver)) writing.write(seen(log::Kind::op_started, stream.id, sequence, op, number), log::kObserver);
    if (op.logged == Logged::when_it_runs) {
        writing.write(event_of_line(stream, sequence, op, number));
    } else if (op.logged == Logged::submitted && !is_event(op)) {
        log::Event event = event_of(log::Kind::notified, stream, sequence, op);
        event.c = number;
        event.site = 0;
        writing.write(event);
    } else if (op.logged == Logged::as_another) {
        std::lock_guard lock(Others::get().mutex);
        const auto entry = Others::get().positions.find({stream.id, sequence});
        if (entry == Others::get().positions.end()) return;
        const auto [other, other_sequence] = entry->second;
        Others::get().positions.erase(entry);
        writing.write({.kind = log::Kind::notified, .stream = other, .sequence = other_sequence, .c = number, .site = 0});
    }
}

void log_recorded(log::Writing& writing, const Notify& notify, uint64_t number) noexcept {
    note_past(PastOf::notify, notify.id, {0, 0, log::context.site, OpKind::notify});
    const auto [bank, line] = line_address(notify);
    if (notify.far_bank == 0 && log::wanted()) writing.write({.kind = log::Kind::notify, .a = bank, .b = line, .c = number, .d = log::context.channel});
    if (notify.far_bank != 0 && log::context.sequence != 0)
        writing.write({.kind = log::Kind::came, .a = bank, .b = log::context.stream, .c = log::context.sequence, .d = number, .site = 0});
    if (!log::is_read(log::kObserver)) return;
    const Op op{.kind = OpKind::notify, .notify = const_cast<Notify*>(&notify)};
    writing.write(seen(log::Kind::op_submitted, 0, 0, op), log::kObserver);
    writing.write(seen(log::Kind::op_started, 0, 0, op, number), log::kObserver);
}

void log_waited(const Stream& stream, uint64_t sequence, const Op& op, uint64_t number) noexcept {
    if (op.logged == Logged::when_it_runs) {
        log::write(event_of_line(stream, sequence, op, number));
    } else if (op.logged == Logged::submitted && !is_event(op)) {
        log::Event event = event_of(log::Kind::notify_waited, stream, sequence, op);
        event.c = number;
        event.site = 0;
        log::write(event);
    }
}

void log_pieces(const Stream& stream, uint64_t sequence, const Op& op, const std::vector<Piece>* pieces) noexcept {
    try {
        log::Spans spans;
        if (pieces) add_spans(spans, *pieces);
        if (op.kind == OpKind::wait_value) add_span(spans, op.dst, op.size, false);
        if (op.kind == OpKind::stepwise) static_cast<const Stepwise*>(op.extra)->add_late_spans(spans);
        log::Event event = event_of(log::Kind::pieces, stream, sequence, op);
        event.spans = &spans;
        event.site = 0;
        log::write(event);
    } catch (const std::bad_alloc&) {
        log::drop();
    }
}

void log_evident(uint64_t stream, uint64_t sequence) noexcept {
    if (sequence != 0 && log::is_read(log::kChecker)) log::write({.kind = log::Kind::evident, .stream = stream, .sequence = sequence, .site = 0});
}

void log_in_vain(const Stream& stream, uint64_t sequence) noexcept {
    if (!log::wanted()) return;
    log::write({.kind = log::Kind::cancelled, .flags = log::kEnd, .stream = stream.id, .sequence = sequence, .a = sequence, .site = 0});
}

void log_aborted(const Stream& stream, uint64_t last) noexcept {
    if (log::wanted()) log::write({.kind = log::Kind::aborted, .stream = stream.id, .sequence = last, .site = 0});
}

void log_cancelled(const Stream& stream, uint64_t sequence, const Op& op, bool has_failed) noexcept {
    if (op.logged == Logged::as_another) {
        std::lock_guard lock(Others::get().mutex);
        Others::get().positions.erase({stream.id, sequence});
        return;
    }
    log::write({.kind = log::Kind::cancelled, .stream = stream.id, .sequence = sequence, .a = sequence, .b = has_failed, .site = 0});
}

}  // namespace peerlane
