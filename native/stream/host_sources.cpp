#include "stream/host_sources.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "log/log.h"
#include "memory/fault_guard.h"
#include "stream/far_operation.h"
#include "stream/logged.h"

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

bool read_digest(const HostRows& rows, uint64_t& digest) {
    rearm_fault_handlers(true);
    FaultGuard guard;
    return guarded(guard, [&] { digest = digest_of(rows); });
}

// Whether it is the host's; `extent`: of pinned memory.
bool is_of_host(const char* host, Extent*& extent) {
    Heap& heap = Heap::get();
    const uint64_t offset = reinterpret_cast<uint64_t>(host) - heap.space().shadow_base();
    extent = nullptr;
    if (!heap.space().is_open() || offset >= heap.space().window()) return true;
    uint64_t within;
    extent = const_cast<Extent*>(heap.extent_of_host(offset, within));
    return extent && extent->device == kHost;
}

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
            for (const Piece& piece : static_cast<const Batch*>(op.extra)->pieces) visit(piece.dst, piece.size);
            return;
        case OpKind::descriptor:   // its list is not read yet
            return visit(nullptr, UINT64_MAX);
        case OpKind::far: {
            const auto [host, size] = static_cast<const FarOperation*>(op.extra)->written();
            return visit(host, size);
        }
        case OpKind::stepwise: {
            const auto [host, size] = static_cast<const Stepwise*>(op.extra)->written();
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
            for (const Piece& piece : static_cast<const Batch*>(op.extra)->pieces) visit(HostRows{piece.src, piece.size, piece.size});
            return;
        default:
            return;
    }
}

// What it waits for may be the host's work, also on memory that a later operation reads.
bool holds_up(OpKind kind) {
    return kind == OpKind::wait || kind == OpKind::wait_notify || kind == OpKind::wait_value || kind == OpKind::callback || kind == OpKind::far ||
           kind == OpKind::stepwise;
}

void log_unwatched(uint64_t stream, uint64_t sequence, OpKind kind, uint32_t site) {
    log::write({.kind = log::Kind::unwatched, .op = static_cast<uint8_t>(kind), .stream = stream, .sequence = sequence, .site = site});
}

}  // namespace

uint32_t HostSources::submitted(Stream& stream, const Op& op, uint64_t sequence, bool runs_at_once) noexcept {
    try {
        return look_at(stream, op, sequence, runs_at_once);
    } catch (const std::bad_alloc&) {
        log::drop();
        for (uint32_t i = 0; i < used_; ++i)
            if (sources_[i].stream != 0) close(sources_[i]);
        return 0;
    }
}

uint32_t HostSources::look_at(Stream& stream, const Op& op, uint64_t sequence, bool runs_at_once) {
    if (op.kind == OpKind::wait && op.mark->stream_id != stream.id && !is_empty()) {
        if (orders_.size() >= kMostOrders) orders_.erase(orders_.begin());
        orders_.push_back({stream.id, sequence, op.mark->stream_id, op.mark->sequence});
    }
    if (holds_up(op.kind)) add_writer(stream, sequence, 0, 0);
    each_written(op, [&](const char* host, uint64_t size) {
        const auto low = reinterpret_cast<uint64_t>(host);
        Extent* extent;
        if (size != 0 && (!host || is_of_host(host, extent))) will_be_written(stream, sequence, low, low + size, runs_at_once);
    });
    if (op.logged != Logged::submitted) return 0;
    uint32_t holds = 0;
    bool is_unwatched = false;
    each_read(op, [&](const HostRows& rows) {
        Extent* extent;
        if (is_unwatched || rows.size() == 0 || !is_of_host(rows.host, extent)) return;
        is_unwatched = op.kind == OpKind::batch && static_cast<const Batch*>(op.extra)->pieces.size() > kMostPieces;
        if (is_unwatched) return;
        // What nobody keeps alive may be freed as soon as it was read.
        const bool may_last = extent || op.keep;
        const bool is_late = (stream.group && !stream.group->may_run(op.phase)) || is_behind_writer(stream, rows.low(), rows.high());
        if (!may_last || !watch(stream, op, sequence, rows, extent, is_late))
            is_unwatched = true;
        else
            holds += op.keep != nullptr;
    });
    if (is_unwatched) log_unwatched(stream.id, sequence, op.kind, log::here.site);
    return holds;
}

// The program may no longer rely on the bytes that are there now: only what it did before is told.
void HostSources::will_be_written(Stream& stream, uint64_t sequence, uint64_t low, uint64_t high, bool runs_at_once) {
    if (!is_empty())
        for (uint32_t i = 0; i < used_; ++i)
            if (Source& source = sources_[i]; source.stream != 0 && source.rows.low() < high && low < source.rows.high()) compare_and_close(source);
    if (!runs_at_once) add_writer(stream, sequence, low, high);
}

void HostSources::add_writer(Stream& stream, uint64_t sequence, uint64_t low, uint64_t high) {
    if (writers_.size() >= most_writers_) {
        std::erase_if(writers_, [](const Writer& each) { return each.is_over(); });
        most_writers_ = std::max(kFewWriters, 2 * writers_.size());
    }
    writers_.push_back({stream.shared_from_this(), sequence, low, high});
}

bool HostSources::is_behind_writer(const Stream& stream, uint64_t low, uint64_t high) {
    return std::any_of(writers_.begin(), writers_.end(), [&](const Writer& each) {
        return !each.is_over() && (each.low == each.high ? each.stream.get() == &stream : each.low < high && low < each.high);
    });
}

bool HostSources::watch(const Stream& stream, const Op& op, uint64_t sequence, const HostRows& rows, Extent* extent, bool is_late) {
    uint64_t digest = 0;
    if (!is_late && !read_digest(rows, digest)) return false;
    if (sources_.empty()) sources_.resize(kMost);
    for (uint32_t i = 0; i < used_ && !is_empty(); ++i) {
        Source& old = sources_[i];
        if (old.stream == 0 || old.rows.low() >= rows.high() || rows.low() >= old.rows.high()) continue;
        // The new one is over later, so it tells all that the old one would.
        if (old.stream == stream.id && old.rows.host == rows.host && old.rows.pitch == rows.pitch && old.rows.width == rows.width && old.rows.height == rows.height)
            compare_and_close(old);
    }
    Source& slot = sources_[next_];
    if (slot.stream != 0) {   // there are too many: its end is not waited for
        log_unwatched(slot.stream, slot.sequence, slot.kind, slot.site);
        compare_and_close(slot);
    }
    next_ = (next_ + 1) % kMost;
    used_ = std::max(used_, next_ == 0 ? kMost : next_);
    slot = {stream.id, sequence, rows, extent, extent ? extent->id.load(std::memory_order_relaxed) : 0, digest, now_ns(),
            log::number.load(std::memory_order_relaxed), log::here.site, static_cast<uint32_t>(gettid()), op.kind, is_late, op.keep};
    late_ += is_late;
    open_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

bool HostSources::has_changed(const Source& source) const {
    if (source.is_late || source.log != log::number.load(std::memory_order_relaxed)) return false;
    if (source.extent && !Heap::get().is_current(source.extent, source.id)) return false;
    uint64_t digest;
    return read_digest(source.rows, digest) && digest != source.digest;
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
    for (uint32_t i = 0; i < used_; ++i) {
        Source& source = sources_[i];
        if (source.stream != stream || source.sequence != sequence || !source.is_late) continue;
        if (!read_digest(source.rows, source.digest)) {
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
