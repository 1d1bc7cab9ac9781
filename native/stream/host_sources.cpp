#include "stream/host_sources.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "log/log.h"
#include "stream/far_operation.h"
#include "stream/logged.h"

namespace peerlane {

namespace {

template <class Visit>
void each_written(const Op& op, const Visit& visit) {
    switch (op.kind) {
        case OpKind::copy:
        case OpKind::copy_2d:
        case OpKind::reduce:
        case OpKind::fill:
        case OpKind::write_value:
            return visit(op.dst, op.size);
        case OpKind::batch:
        case OpKind::file:
            for (const Piece& piece : static_cast<const Batch*>(op.extra)->pieces)
                if (piece.dst) visit(piece.dst, piece.size);
            return;
        case OpKind::descriptor:   // its list is not read yet
            return visit(nullptr, UINT64_MAX);
        case OpKind::far: {
            const auto [host, size] = static_cast<const FarOperation*>(op.extra)->written();
            return visit(host, size);
        }
        case OpKind::stepwise: {
            const auto& work = static_cast<const Stepwise&>(*op.extra);
            for (const auto& rows : work.watched())
                if (rows.is_written) visit(rows.host, HostRows{rows.host, rows.pitch, rows.width, rows.height}.extent());
            const auto [host, size] = work.written();
            return visit(host, size);
        }
        default:
            return;
    }
}

template <class Visit>
void each_read(const Op& op, const Visit& visit) {
    switch (op.kind) {
        case OpKind::copy:
        case OpKind::reduce:
            return visit(HostRows{op.src, op.size, op.size});
        case OpKind::copy_2d: {
            const auto& shape = static_cast<const Rectangle&>(*op.extra);
            if (shape.width != 0 && shape.height != 0) visit(HostRows{op.src, shape.src_pitch, shape.width, shape.height});
            return;
        }
        case OpKind::batch:
        case OpKind::file:
            for (const Piece& piece : static_cast<const Batch*>(op.extra)->pieces)
                if (piece.src) visit(HostRows{piece.src, piece.size, piece.size});
            return;
        case OpKind::stepwise:
            for (const auto& rows : static_cast<const Stepwise*>(op.extra)->watched())
                if (!rows.is_written) visit(HostRows{rows.host, rows.pitch, rows.width, rows.height});
            return;
        default:
            return;
    }
}

// What it waits for may be the host's work, also on memory that a later operation reads.
bool holds_up(const Op& op) {
    return op.kind == OpKind::wait || op.kind == OpKind::wait_notify || op.kind == OpKind::wait_value || op.kind == OpKind::callback || op.kind == OpKind::far ||
           (op.kind == OpKind::stepwise && static_cast<const Stepwise*>(op.extra)->may_wait());
}

}  // namespace

HostSources::Watched HostSources::submitted(Stream& stream, const Op& op, uint64_t sequence, bool runs_at_once, bool may_hold_back) noexcept {
    Watched watched;
    try {
        look_at(watched, stream, op, sequence, runs_at_once, may_hold_back);
    } catch (const std::bad_alloc&) {
        log::drop();
        for (uint32_t i = 0; i < used_; ++i)
            if (sources_[i].stream != 0) close(sources_[i]);
        watched.references = 0;
    }
    return watched;
}

void HostSources::look_at(Watched& watched, Stream& stream, const Op& op, uint64_t sequence, bool runs_at_once, bool may_hold_back) {
    if (op.kind == OpKind::wait && op.mark->stream_id != stream.id && !is_empty()) {
        if (orders_.size() >= kMostOrders) orders_.erase(orders_.begin());
        orders_.push_back({stream.id, sequence, op.mark->stream_id, op.mark->sequence});
    }
    if (holds_up(op) && !(op.kind == OpKind::wait && is_let_on(*op.mark))) add_writer(stream, sequence, 0, 0);
    if (op.logged == Logged::submitted) watched.is_held_back = watch_destination(stream, op, sequence, may_hold_back);
    each_written(op, [&](const char* host, uint64_t size) {
        const auto low = reinterpret_cast<uint64_t>(host);
        Extent* extent;
        if (size != 0 && (!host || is_of_host(host, extent))) will_be_written(stream, sequence, low, low + size, runs_at_once);
    });
    bool is_unwatched = op.logged != Logged::submitted;
    each_read(op, [&](const HostRows& rows) {
        Extent* extent;
        if (rows.size() == 0 || !is_of_host(rows.host, extent)) return;
        if (!runs_at_once) add_writer(stream, sequence, rows.low(), rows.high(), true);
        is_unwatched = is_unwatched || (op.is_batch() && static_cast<const Batch*>(op.extra)->pieces.size() > kMostPieces);
        if (is_unwatched) return;
        const bool is_late = (stream.group && !stream.group->may_run(op.phase)) || is_behind_writer(stream, rows.low(), rows.high());
        if (!extent && !op.keep) {   // it may be freed as soon as it was read, and is watched until then alone
            const bool is_watched = may_hold_back && !is_late && destinations_.watch_source(stream, op, sequence, rows) != HostDestinations::Seen::nothing;
            watched.is_held_back |= is_watched;
            is_unwatched = !is_watched;
        } else if (!watch(stream, op, sequence, rows, extent, is_late))
            is_unwatched = true;
        else
            watched.references += op.keep != nullptr;
    });
    if (is_unwatched && op.logged == Logged::submitted) not_watched(read, stream.id, sequence, op.kind, log::context.site);
}

// Whether the operation is to be held back.  What stands before it in its stream may be the program's leave to touch the bytes still.
bool HostSources::watch_destination(const Stream& stream, const Op& op, uint64_t sequence, bool may_hold_back) {
    bool is_any = false, is_all_closed = true;
    uint32_t most = kMostDestinations;   // of a list: others need records, too
    each_of_host_written_by(op, [&](const HostRows& rows) {
        auto seen = HostDestinations::Seen::nothing;
        if (may_hold_back && most != 0 && !(stream.group && !stream.group->may_run(op.phase)) && !is_behind_writer(stream, rows.low(), rows.high(), true))
            seen = destinations_.watch(stream, op, sequence, rows);
        is_any = is_any || seen != HostDestinations::Seen::nothing;
        is_all_closed = is_all_closed && seen == HostDestinations::Seen::touches;
        return most-- != 0;
    });
    if (!is_all_closed) not_watched(written, stream.id, sequence, op.kind, log::context.site);
    return is_any;
}

// Whether nothing but other streams' operations stands before a record.
bool HostSources::is_let_on(const Mark& mark) const {
    return mark.state.load(std::memory_order_relaxed) != Mark::pending || std::none_of(writers_.begin(), writers_.end(), [&](const Writer& each) {
        return each.low == each.high && each.stream->id == mark.stream_id && each.sequence <= mark.sequence && !each.is_over();
    });
}

// From now on the bytes may change rightly: only earlier changes are reported.
void HostSources::will_be_written(Stream& stream, uint64_t sequence, uint64_t low, uint64_t high, bool runs_at_once) {
    if (!is_empty())
        for (uint32_t i = 0; i < used_; ++i)
            if (Source& source = sources_[i]; source.stream != 0 && source.rows.low() < high && low < source.rows.high()) compare_and_close(source);
    if (!runs_at_once) add_writer(stream, sequence, low, high);
}

void HostSources::add_writer(Stream& stream, uint64_t sequence, uint64_t low, uint64_t high, bool only_reads) {
    if (writers_.size() >= most_writers_) {
        std::erase_if(writers_, [](const Writer& each) { return each.is_over(); });
        most_writers_ = std::max(kFewWriters, 2 * writers_.size());
    }
    writers_.push_back({stream.shared_from_this(), sequence, low, high, only_reads});
}

bool HostSources::is_behind_writer(const Stream& stream, uint64_t low, uint64_t high, bool also_readers) {
    return std::any_of(writers_.begin(), writers_.end(), [&](const Writer& each) {
        return !each.is_over() && (also_readers || !each.only_reads) && (each.low == each.high ? each.stream.get() == &stream : each.low < high && low < each.high);
    });
}

bool HostSources::watch(const Stream& stream, const Op& op, uint64_t sequence, const HostRows& rows, Extent* extent, bool is_late) {
    uint64_t digest = 0;
    if (rows.size() > kFewBytes && !time_.is_left()) return false;
    if (!is_late && !read_in_time(rows, digest)) return false;
    if (sources_.empty()) sources_.resize(kMost);
    for (uint32_t i = 0; i < used_ && !is_empty(); ++i) {
        Source& old = sources_[i];
        if (old.stream == 0 || old.rows.low() >= rows.high() || rows.low() >= old.rows.high()) continue;
        // The new one is over later, so it reports all that the old one would.
        if (old.stream == stream.id && old.rows.host == rows.host && old.rows.pitch == rows.pitch && old.rows.width == rows.width && old.rows.height == rows.height)
            compare_and_close(old);
    }
    Source& slot = sources_[next_];
    if (slot.stream != 0) {   // there are too many: its end is not waited for
        not_watched(read, slot.stream, slot.sequence, slot.kind, slot.site);
        compare_and_close(slot);
    }
    next_ = (next_ + 1) % kMost;
    used_ = std::max(used_, next_ == 0 ? kMost : next_);
    slot = {stream.id, sequence, rows, extent, extent ? extent->id.load(std::memory_order_relaxed) : 0, digest, now_ns(),
            log::number.load(std::memory_order_relaxed), log::context.site, static_cast<uint32_t>(gettid()), op.kind, is_late, false, op.keep};
    late_ += is_late;
    open_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

bool HostSources::read_in_time(const HostRows& rows, uint64_t& digest) {
    if (rows.size() > kFewBytes) time_.spend(ns_of_digest(rows.size()));
    return read_digest(rows, digest);
}

// The first ones are logged at once, and then several by one event.
void HostSources::not_watched(End end, uint64_t stream, uint64_t sequence, OpKind kind, uint32_t site) noexcept {
    Unwatched& all = unwatched_[end];
    all = {all.all + 1, all.unlogged + 1, stream, sequence, kind, site};
    if ((all.all & (all.all - 1)) == 0 || all.unlogged >= kMostUnlogged) count_unwatched(end);
}

void HostSources::count_unwatched(End end) noexcept {
    Unwatched& all = unwatched_[end];
    if (all.unlogged == 0) return;
    log::write({.kind = log::Kind::unwatched, .op = static_cast<uint8_t>(all.kind), .flags = end == written ? log::kShared : uint8_t{0}, .stream = all.stream,
                .sequence = all.sequence, .a = all.unlogged, .site = all.site});
    all.unlogged = 0;
}

void HostSources::end() noexcept {
    if (destinations_.has_changed()) destinations_.end();
    for (uint32_t i = 0; i < used_; ++i)
        if (sources_[i].stream != 0) compare_and_close(sources_[i]);
    count_unwatched(read);
    count_unwatched(written);
}

bool HostSources::has_changed(const Source& source) {
    if (source.is_late || source.log != log::number.load(std::memory_order_relaxed)) return false;
    if (source.extent && !Heap::get().is_current(source.extent, source.id)) return false;
    uint64_t digest;
    return read_in_time(source.rows, digest) && digest != source.digest;
}

void HostSources::compare_and_close(Source& source) {
    if (has_changed(source)) {
        try {
            log::Spans spans;
            add_rows(spans, source.rows.host, source.rows.pitch, source.rows.width, source.rows.height, false);
            log::write({.kind = log::Kind::source_changed, .op = static_cast<uint8_t>(source.kind), .stream = source.stream, .sequence = source.sequence,
                        .a = uint64_t{source.site} << 32 | source.thread, .b = source.time_ns, .spans = &spans});
        } catch (const std::bad_alloc&) {
            log::drop();
        }
    }
    close(source);
}

void HostSources::close(Source& source) {
    if (source.keep) or_lose([&] { let_go.push_back(source.keep); });
    late_ -= source.is_late;
    source.stream = 0;
    source.is_late = false;
    source.keep = nullptr;
    if (open_.fetch_sub(1, std::memory_order_relaxed) == 1) {
        orders_.clear();
        used_ = next_ = 0;
    }
}

void HostSources::starting(uint64_t stream, uint64_t sequence) {
    if (!destinations_.is_empty()) destinations_.starting(stream, sequence);
    for (uint32_t i = 0; i < used_; ++i) {
        Source& source = sources_[i];
        if (source.stream != stream || source.sequence != sequence || !source.is_late) continue;
        if (!read_in_time(source.rows, source.digest)) {
            close(source);
            continue;
        }
        source.is_late = false;
        --late_;
    }
}

void HostSources::may_be_known(uint64_t stream, uint64_t sequence) {
    if (is_empty()) return;
    for (uint32_t i = 0; i < used_; ++i) {
        Source& source = sources_[i];
        if (source.stream == stream && source.sequence <= sequence && !std::exchange(source.may_be_known, true) && has_changed(source)) compare_and_close(source);
    }
}

void HostSources::known(uint64_t stream, uint64_t sequence) {
    if (destinations_.has_changed()) destinations_.known(stream, sequence);
    for (uint32_t i = 0; i < used_; ++i)
        if (Source& source = sources_[i]; source.stream == stream && source.sequence <= sequence) compare_and_close(source);
    for (size_t i = 0; i < orders_.size();) {
        if (orders_[i].stream != stream || orders_[i].sequence > sequence) {
            ++i;
            continue;
        }
        const Order order = orders_[i];
        orders_.erase(orders_.begin() + static_cast<ptrdiff_t>(i));
        known(order.earlier_stream, order.earlier_sequence);
        i = 0;
    }
}

}  // namespace peerlane
