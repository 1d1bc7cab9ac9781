// Collectives of ranks on one machine: at once in the calling thread, or as one operation of a stream.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "python/bind_collectives.h"
#include "python/bind_operands.h"
#include "python/bind_signals.h"
#include "python/quick_method.h"
#include "ranks/collective.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

const Memory* memory_or_none(nb::handle object) { return object.is_none() ? nullptr : &nb::cast<const Memory&>(object); }

// With its memory pinned.
GroupCall pinned_call(const Rounds& rounds, GroupCall::Kind kind, const Memory* dst, const Memory* src, uint32_t root, int number) {
    GroupCall call{.kind = kind, .root = root};
    if (number >= 0) {
        call.operation = static_cast<unsigned>(number);
        call.reduction = &reduction_numbered(call.operation);
    }
    if (dst) {
        call.dst_size = dst->size();
        call.dst = dst->pin_writable();
    }
    try {
        if (src) {
            call.src_size = src->size();
            call.src = src->pin();
        } else if (kind == GroupCall::Kind::all_gather && dst) {   // this rank's part is in its place
            call.src_size = call.dst_size / rounds.size;
            call.src = Memory(*dst, rounds.rank * call.src_size, call.src_size).pin();
        }
    } catch (const Refusal&) {
        Heap::get().unpin(call.dst);
        throw;
    }
    return call;
}

void queue(const StreamHandle& stream, Collective&& collective, uint64_t timeout_ns, nb::handle keep) {
    queue_steps(stream, std::make_unique<Collective>(std::move(collective)), timeout_ns, keep);
}

}  // namespace

int run_now(RoundsHandle& self, GroupCall::Kind kind, const Memory* dst, const Memory* src, uint32_t root, int number,
            CanFault can_fault, PartsOfCall&& parts) {
    if (!may_make_calls(self.log.get()) || Turns::is_on() || Heap::get().is_forked()) [[unlikely]] return 0;   // a barrier has no memory
    Rounds& rounds = *self.rounds;
    if (!rounds.claim_mutex.try_lock()) return 0;
    Claim claim{rounds.claim_mutex};
    if (!rounds.is_plain || rounds.farewell->is_sent()) return 0;
    if (!rounds.is_whole() && kind != GroupCall::Kind::barrier) return 0;
    std::optional<GroupCall> call;
    try {
        call = pinned_call(rounds, kind, dst, src, root, number);
    } catch (const Refusal&) {   // who is called next says why
        return 0;
    }
    const uint64_t bytes = std::max(call->dst_size, call->src_size);
    if (parts.is_none() && (!call->take_size(rounds.rank, rounds.size) || !call->has_whole_elements())) {
        call->unpin();
        return 0;
    }
    parts.move_to(*call);
    call->number = ++rounds.calls;
    call->can_fault = can_fault != CanFault::no;
    LoggedCall logged(log::wanted() ? self.log.get() : nullptr, kind, root, call->dst, call->dst_size, call->src, call->src_size);
    Collective collective(self.rounds, std::move(*call));
    Collective::Step step{};
    Refusal why{};
    if (run_patiently(collective, can_fault, bytes <= kBrief && !rounds.has_local_peer(), rounds.must_yield, step, why)) {
        logged.is_over();
        return 1;
    }
    self.begun.emplace(std::move(collective));
    self.logged = logged.begun();
    claim.is_kept = true;
    return 2;
}

void bind_collectives(nb::module_& m) {
    m.attr("ROUND_LINES") = Rounds::kLines;
    m.def("barrier_neighbours", &BarrierTree::neighbours, "rank"_a, "ranks"_a, "The ranks that a rank signals in a barrier.");
    m.def("bytes_of_rounds", &Rounds::bytes, "long_slot"_a, "How many bytes of memory a rank's slots take.");
    nb::class_<FarewellHandle>(m, "Farewell", "Ends the waits of channels' peers for what this rank will not do any more.")
        .def(
            "__init__",
            [](FarewellHandle* self, const std::vector<const ChannelLinesHandle*>& lines) {
                std::vector<std::shared_ptr<ChannelLines>> held;
                for (const ChannelLinesHandle* const each : lines) held.push_back(each->lines);
                new (self) FarewellHandle{std::make_shared<Farewell>(std::move(held))};
            },
            "lines"_a, nb::sig("def __init__(self, lines: typing.Sequence[ChannelLines]) -> None"),
            "`lines`: the notifies that this rank records, of each channel.")
        .def(
            "behind",
            [](const FarewellHandle& self, const StreamHandle& stream) { queue_steps(stream, std::make_unique<Behind>(self.farewell), 0, nb::handle()); },
            "stream"_a, "Send it if operations that the stream has by now are cancelled.")
        .def(
            "add", [](const FarewellHandle& self, const ChannelLinesHandle& lines) { self.farewell->add(lines.lines); }, nb::call_guard<GilReleased>(), "lines"_a,
            "Add the notifies of one more channel.")
        .def("send", [](const FarewellHandle& self) { self.farewell->send(); }, nb::call_guard<GilReleased>(), "Send it now.")
        .def_prop_ro("is_sent", [](const FarewellHandle& self) { return self.farewell->is_sent(); });

    nb::class_<RoundsHandle>(m, "Rounds", "A rank's part in the collectives of the ranks of one machine.")
        .def(
            "__init__",
            [](RoundsHandle* self, uint32_t rank, uint32_t size, const Memory& slots, const std::vector<pid_t>& pids, const FarewellHandle& farewell,
               uint32_t processors) {
                if (size < 2 || rank >= size || pids.size() != size - 1) throw nb::value_error("not as many as there are peers");
                const uint64_t short_bytes = Rounds::bytes(0);
                if (slots.size() <= short_bytes) throw nb::value_error("no room for the slots");
                std::vector<Rounds::Peer> peers;
                for (uint32_t i = 0; i < pids.size(); ++i) peers.push_back({.rank = (rank + 1 + i) % size, .memory = PeerMemory(pids[i])});
                const Range own = slots.pin_writable();
                const uint64_t long_slot = (slots.size() - short_bytes) / Rounds::kLongSlots / 64 * 64;
                new (self) RoundsHandle{std::make_shared<Rounds>(rank, size, own, long_slot, std::move(peers), size > processors, farewell.farewell),
                                        {}};
                self->slot_bytes = slots.size();
            },
            "rank"_a, "size"_a, "slots"_a, "pids"_a, "farewell"_a, "processors"_a,
            nb::sig("def __init__(self, rank: int, size: int, slots: Memory, pids: typing.Sequence[int], farewell: Farewell, processors: int) -> None"),
            "`pids`: the processes of the other ranks, from the one behind this one on.")
        .def(
            "connect",
            [](RoundsHandle& self, uint32_t peer, const Memory& slots, const ChannelLinesHandle& incoming, const ChannelLinesHandle& outgoing, uint32_t first) {
                Rounds& rounds = *self.rounds;
                if (peer >= rounds.size || peer == rounds.rank || rounds.peer(peer).incoming[0]) throw nb::value_error("no peer that is not connected");
                if (slots.size() != self.slot_bytes) throw nb::value_error("not as long as the others' slots");
                if (incoming.lines->count < first + Rounds::kLines || outgoing.lines->count < first + Rounds::kLines) throw nb::value_error("not as many lines");
                Rounds::Lines in{}, out{};
                for (uint32_t line = 0; line < Rounds::kLines; ++line) {
                    in[line] = &incoming.lines->at(first + line);
                    out[line] = &outgoing.lines->at(first + line);
                }
                const Range pinned = slots.pin();
                for (uint32_t line = 0; line < Rounds::kLines; ++line) {
                    in[line]->hold();
                    out[line]->hold();
                }
                rounds.connect(peer, pinned, in, out);
            },
            "peer"_a, "slots"_a, "incoming"_a, "outgoing"_a, "first"_a,
            "Connect a rank, once: its slots, and the lines from it and to it, from line `first` on.")
        .def_prop_ro("is_whole", [](const RoundsHandle& self) { return self.rounds->is_whole(); }, "Whether all ranks are connected.")
        .def(
            "run",
            [](RoundsHandle& self, int kind, nb::handle dst, nb::handle src, uint32_t root, int number, std::vector<uint64_t> at,
               std::vector<uint64_t> sizes, std::vector<uint64_t> source_at, std::vector<uint64_t> source_sizes, nb::handle finish) {
                const int how = run_now(self, static_cast<GroupCall::Kind>(kind), memory_or_none(dst), memory_or_none(src), root, number, CanFault::anywhere,
                                        {std::move(at), std::move(sizes), std::move(source_at), std::move(source_sizes)});
                if (how == 2) self.hand_over([&] { return PyObject_CallNoArgs(finish.ptr()); });
                return how != 0;
            },
            "kind"_a, "dst"_a.none(), "src"_a.none(), "root"_a, "number"_a, "at"_a, "sizes"_a, "source_at"_a, "source_sizes"_a, "finish"_a,
            "Make a collective in this thread.  False: it was not begun, and Python must make it, for instance because calls are queued, another "
            "thread makes one, or an argument is refused.  If it waits for long, `finish` is called, which has the claim, calls queue_begun() and "
            "releases the claim.")
        .def(
            "queue_begun",
            [](RoundsHandle& self, const StreamHandle& stream, uint64_t timeout_ns, nb::handle dst, nb::handle src) {
                Collective collective = std::move(self.begun.value());
                self.begun.reset();
                queue(stream, std::move(collective), timeout_ns, nb::make_tuple(dst, src));   // also arrays of NumPy
            },
            "stream"_a, "timeout_ns"_a, "dst"_a.none(), "src"_a.none())
        .def(
            "queue",
            [](RoundsHandle& self, const StreamHandle& stream, uint64_t timeout_ns, int kind, nb::handle dst, nb::handle src, uint32_t root, int number,
               std::vector<uint64_t> at, std::vector<uint64_t> sizes, std::vector<uint64_t> source_at, std::vector<uint64_t> source_sizes) {
                GroupCall call =
                    pinned_call(*self.rounds, static_cast<GroupCall::Kind>(kind), memory_or_none(dst), memory_or_none(src), root, number);
                call.number = self.rounds->calls;
                PartsOfCall{std::move(at), std::move(sizes), std::move(source_at), std::move(source_sizes)}.move_to(call);
                if (call.sizes.empty() && !call.take_size(self.rounds->rank, self.rounds->size)) {
                    call.unpin();
                    throw nb::value_error("these sizes do not belong together");
                }
                const nb::object keep = kept(dst.is_none() ? nb::handle() : dst, src.is_none() ? nb::handle() : src);
                queue(stream, Collective(self.rounds, std::move(call)), timeout_ns, keep);
            },
            "stream"_a, "timeout_ns"_a, "kind"_a, "dst"_a.none(), "src"_a.none(), "root"_a, "number"_a, "at"_a, "sizes"_a, "source_at"_a, "source_sizes"_a)
        .def_prop_ro("begun", [](const RoundsHandle& self) { return called(self.begun.value().word()); },
                     nb::sig("def begun(self) -> tuple[int, int, int, int, bool]"), "What run() has begun, in numbers.")
        .def(
            "let_go",
            [](RoundsHandle& self) {
                if (self.rounds.use_count() != 1) return;   // a call is under way; the last one to go lets go
                for (Rounds::Peer& peer : self.rounds->peers()) peer.memory.forget();
            },
            "Let go of what peers' memory is mapped here; there are no more calls.")
        .def(
            "claim",
            [](const RoundsHandle& self, double seconds) { return claim(self.rounds->claim_mutex, seconds); },
            "seconds"_a, "Claim the calls for this thread; False: another thread still has the claim.")
        .def(
            "release", [](RoundsHandle& self) { end_claim(self.begun, self.rounds->claim_mutex); },
            "End the claim; a call that run() has begun in it and nobody has queued ends.")
        .def_rw("log", &RoundsHandle::log, "What the event log has of its calls; None: native code makes none while a log is written.", nb::arg().none())
        .def_prop_rw(
            "is_plain", [](const RoundsHandle& self) { return self.rounds->is_plain.load(); },
            [](const RoundsHandle& self, bool is_plain) { self.rounds->is_plain = is_plain; }, "Whether run() may make a call: nothing is queued.")
        .def("count", [](const RoundsHandle& self) { return ++self.rounds->calls; }, "Count a call; its number.")
        .def_prop_ro("calls", [](const RoundsHandle& self) { return self.rounds->calls; }, "How many calls there were.");
}
