#include "python/group_log.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <ctime>

#include "python/bind.h"
#include "stream/logged.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

uint64_t clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool is_message(log::Collective kind) { return kind == log::Collective::send || kind == log::Collective::receive; }

log::Collective logged_kind(GroupCall::Kind kind) {
    switch (kind) {
    case GroupCall::Kind::broadcast: return log::Collective::broadcast;
    case GroupCall::Kind::all_gather: return log::Collective::all_gather;
    case GroupCall::Kind::all_reduce: return log::Collective::all_reduce;
    case GroupCall::Kind::reduce: return log::Collective::reduce;
    case GroupCall::Kind::reduce_scatter: return log::Collective::reduce_scatter;
    case GroupCall::Kind::all_to_all: return log::Collective::all_to_all;
    case GroupCall::Kind::scatter: return log::Collective::scatter;
    case GroupCall::Kind::send: return log::Collective::send;
    case GroupCall::Kind::receive: return log::Collective::receive;
    default: return log::Collective::barrier;
    }
}

void add_memory(log::Spans& spans, const std::vector<const Memory*>& all, bool written) {
    for (const Memory* each : all) {
        const Range range = each->pin();
        add_span(spans, range.host, each->size(), written);
        Heap::get().unpin(range);
    }
}

}  // namespace

void GroupLog::write_name() {
    named_in_ = log::number.load(std::memory_order_relaxed);
    log::write_name("{\"group\": " + std::to_string(group_) + ", \"name\": " + log::quoted(name_) + ", \"rank\": " + std::to_string(rank_) +
                    ", \"size\": " + std::to_string(size_) + "}");
}

GroupLog::Call GroupLog::count(log::Collective kind, uint32_t peer) {
    note_site();
    const uint64_t lane = is_message(kind) ? (uint64_t{peer} << 1 | (kind == log::Collective::send)) + 1 : 0;
    return {kind, peer, ++counts_[lane], log::context.site};
}

void GroupLog::write(log::Kind event, const Call& call, const log::Spans* spans, uint64_t stream, uint64_t sequence, uint8_t flags) const noexcept {
    log::write({.kind = event, .flags = flags, .stream = stream, .sequence = sequence, .a = group_,
                .b = call.number << 16 | static_cast<uint64_t>(call.kind) << 8, .c = call.peer, .d = uint64_t{size_} << 32 | rank_, .spans = spans,
                .site = call.site});
}

LoggedCall::LoggedCall(GroupLog* log, GroupCall::Kind kind, uint32_t peer, const Range& dst, uint64_t dst_size, const Range& src, uint64_t src_size)
    : log_(log) {
    if (!log_) return;
    try {
        if (dst.host) add_span(spans_, dst.host, dst_size, true);
        if (src.host) add_span(spans_, src.host, src_size, false);
        call_ = log_->count(logged_kind(kind), peer);
    } catch (const std::bad_alloc&) {
        log::drop();
        log_ = nullptr;
        return;
    }
    since_ns_ = clock_ns();
    quiet_.emplace();
}

LoggedCall::~LoggedCall() {
    if (log_) log_->write(log::Kind::collective, call_, &spans_);
}

void LoggedCall::is_over() {
    if (!log_) return;
    log_->write(log::Kind::collective, call_, &spans_, 0, clock_ns() - since_ns_, log::kEnd);
    log_ = nullptr;
}

std::optional<GroupLog::Call> LoggedCall::begun() const { return log_ ? std::optional(call_) : std::nullopt; }

void bind_group_log(nb::module_& m) {
    nb::class_<GroupLog>(m, "GroupLog", "What the event log has of a rank's collectives and messages.")
        .def(nb::init<std::string, uint64_t, uint32_t, uint32_t>(), "name"_a, "group"_a, "rank"_a, "size"_a)
        .def(
            "begin",
            [](GroupLog& self, int kind, uint32_t peer, const std::vector<const Memory*>& written, const std::vector<const Memory*>& read, uint64_t stream,
               uint64_t sequence) {
                if (!self.is_named()) self.write_name();
                const GroupLog::Call call = self.count(static_cast<log::Collective>(kind), peer);
                if (log::wanted()) {
                    log::Spans spans;
                    add_memory(spans, written, true);
                    add_memory(spans, read, false);
                    self.write(log::Kind::collective, call, &spans, stream, sequence);
                }
                return call;
            },
            "kind"_a, "peer"_a, "written"_a, "read"_a, "stream"_a = 0, "sequence"_a = 0, "Log the beginning of a call, on a stream or in this thread.")
        .def(
            "end", [](const GroupLog& self, const GroupLog::Call& call) { if (log::wanted()) self.write(log::Kind::collected, call, nullptr); }, "call"_a,
            "Log the end of a call of this thread.");
    nb::class_<GroupLog::Call>(m, "LoggedGroupCall", "A call of a group, as the event log has it.");
}
