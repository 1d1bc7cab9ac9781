// Signals that processes share: notifies, banks of them, and events given to others, and theirs.
#include <sched.h>
#include <unistd.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "python/bind_signals.h"
#include "share/shared_signal.h"
#include "stream/far_operation.h"
#include "stream/logged.h"
#include "stream/scheduler.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

int get_area(PyObject* self, Py_buffer* view, int flags) {
    const LateArea& area = *nb::inst_ptr<LateAreaHandle>(self)->area;
    return PyBuffer_FillInfo(view, self, area.base(), static_cast<Py_ssize_t>(area.size()), 0, flags);
}
PyType_Slot area_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_area)}, {0, nullptr}};

std::shared_ptr<SharedSignal> created(const LedgerHandle& ledger, uint32_t bank) {
    Scheduler::get().use_bell(ledger.ledger);
    return SharedSignal::create(ledger.ledger, bank);
}

}  // namespace

// Where there are more ranks than cores, who would record may be waiting for this core: time that others took does not
// count, up to a limit.
template <class Look>
bool spin_politely(const Look& look, uint64_t own_ns) {
    constexpr uint64_t kLongestAway = 40;   // times as long
    uint64_t own = 0;
    const uint64_t start = now_ns();
    for (uint64_t now = start; own < own_ns && now - start < kLongestAway * own_ns;) {
        for (unsigned looks = 0; looks < 16; ++looks) {
            if (look()) return true;
            help_far();
        }
        sched_yield();
        const uint64_t then = std::exchange(now, now_ns());
        own += std::min<uint64_t>(now - then, 2'000);   // longer than this takes only who was not running
    }
    return look();
}

bool consume_now(const HeldNotify& self, uint64_t spin_ns) {
    constexpr uint64_t kWithGil = 2'000;   // giving it away and taking it back costs 50 ns, and more if somebody takes it
    Notify& notify = *self.shared;
    Heap::get().check_usable();
    if (log::is_read(log::kObserver)) [[unlikely]] return false;   // the observer gets waits of streams, and not this one
    std::optional<uint32_t> other;
    uint64_t number = 0;
    const auto look = [&] {
        if ((number = notify.consume(other)) == 0) return false;
        if (other) throw out_of_order(notify, *other);
        return true;
    };
    if (look()) {
        if (log::wanted()) [[unlikely]] log_waited_now(notify, number);
        return true;
    }
    if (spin_ns == 0) return false;
    if (notify.is_far) spin_ns *= 4;   // what sleeps there is woken twice
    const auto spin = [&look](uint64_t until) {
        while (now_ns() < until)
            for (unsigned looks = 0; looks < 16; ++looks) {
                if (look()) return true;
                help_far();
            }
        return false;
    };
    const uint64_t start = now_ns();
    bool is_consumed = spin(start + std::min(spin_ns, kWithGil));
    if (!is_consumed && spin_ns > kWithGil) {
        const GilReleased gil;
        is_consumed = spin_politely(look, spin_ns);
    }
    if (is_consumed && log::wanted()) [[unlikely]] log_waited_now(notify, number);
    return is_consumed;
}

void record_now(Notify& notify) {
    note_site();
    Scheduler::get().notify_recorded(notify);
    log_if_observed();
}

std::shared_ptr<SharedSignal> open_signal(const Offer& offer, const LedgerHandle& ledger, uint32_t bank) {
    Scheduler::get().use_bell(ledger.ledger);
    return SharedSignal::open(offer.fd, ledger.ledger, bank);
}

static void log_lease(log::Kind kind, const Lease& lease, const Memory& memory) {
    if (!log::wanted()) return;
    note_site();
    log::Spans spans;
    if (memory.is_live()) try {
            const Range held = memory.pin();
            add_span(spans, held.host, memory.size(), true);
            Heap::get().unpin(held);
        } catch (const Refusal&) {
            // Freed meanwhile: the log has its end.
        }
    log::write({.kind = kind, .a = lease.id, .spans = &spans});
}

void bind_signals(nb::module_& m) {
    m.attr("SHARED_RECORDS") = SharedSignal::kRecords;
    m.attr("MOST_LINES") = SharedSignal::kMostLines;
    nb::class_<LateAreaHandle>(m, "LateArea", nb::type_slots(area_slots), "Memory of two processes for late writes; exports its bytes.")
        .def(
            "__init__",
            [](LateAreaHandle* self, const SignalHandle& bank) {
                if (bank.signal->bank() != LateArea::kLines) throw nb::value_error("not a bank of LATE_LINES");
                new (self) LateAreaHandle{std::make_shared<LateArea>(bank.signal)};
            },
            "bank"_a)
        .def("discard", [](const LateAreaHandle& self) { self.area->discard(); }, "Return the pages behind the entries to the system.");
    m.attr("LATE_LINES") = LateArea::kLines;
    m.attr("LATE_ENTRIES") = LateArea::kEntries;
    m.attr("LATE_HEADER") = sizeof(LateArea::Header);
    nb::class_<UndeliveredHandle>(m, "Undelivered", "Delivers the entries of an area.")
        .def(
            "__init__",
            [](UndeliveredHandle* self, const LateAreaHandle& from, nb::sequence memories, bool receives) {
                std::vector<Memory> copied;
                for (nb::handle each : memories) {
                    const auto& memory = nb::cast<const Memory&>(each);
                    copied.emplace_back(memory, 0, memory.size());
                }
                new (self) UndeliveredHandle{from.area, std::make_shared<Undelivered>(from.area, std::move(copied))};
                if (!receives) return;
                Undelivered::attend(self->by);
                Scheduler::get().attend();
            },
            "area"_a, "memories"_a, "receives"_a,
            nb::sig("def __init__(self, area: LateArea, memories: collections.abc.Sequence[Memory], receives: bool) -> None"),
            "To memories that the sender was offered; `receives`: they are this process's.")
        .def("deliver_all", [](const UndeliveredHandle& self) { self.by->deliver_all(); }, nb::call_guard<GilReleased>(),
             "Deliver all that is staged.")
        .def_static(
            "deliver_to", [](const Memory& part) { Undelivered::deliver_to(part); }, "part"_a, nb::call_guard<GilReleased>(),
            "Deliver all that is staged for memory that this process lends, and is about to take back.")
        .def_static(
            "await_all_to",
            [](const Memory& part, double seconds) {
                const auto is_over = [&part] { return !Undelivered::awaits_any_to(part); };
                const GilReleased gil;
                if (Turns::is_on() && Turns::is_participant()) {
                    (void)Scheduler::get().wait_in_turns(is_over, Deadline::in(seconds).at);
                    return Turns::regain();
                }
                for (const uint64_t until = now_ns() + static_cast<uint64_t>(seconds * 1e9); !is_over() && now_ns() < until;) usleep(500);
            },
            "part"_a, "seconds"_a, "Wait until the peers have delivered their entries for memory that is about to be taken back.")
        .def(
            "step",
            [](const UndeliveredHandle& self, int step, uint64_t argument) {
                if (step < static_cast<int>(Notify::Step::stage) || step > static_cast<int>(Notify::Step::fence))
                    throw nb::value_error("not a step");
                if (step == static_cast<int>(Notify::Step::stage) && argument >= LateArea::kEntries) throw nb::index_error("no such entry");
                return new HeldNotify{Notify::step(static_cast<Notify::Step>(step), self.area, self.by, argument)};
            },
            "step"_a, "argument"_a, nb::rv_policy::take_ownership,
            "What a stream records to make a step: 3 stage an entry, 4 deliver all of a source, 5 a fence.");
    nb::class_<MembersHandle>(m, "Members", "The processes of a group.");
    nb::class_<SignalHandle>(m, "Signal", "What processes share of a notify or an event, or a bank of notifies.")
        .def(
            "__init__",
            [](SignalHandle* self, const LedgerHandle& ledger, uint32_t bank) {
                if (bank > SharedSignal::kMostLines) throw nb::value_error("too many lines");
                new (self) SignalHandle{created(ledger, bank), true};
            },
            "ledger"_a, "bank"_a = 0, "`bank`: how many lines of a bank.")
        .def(
            "offer",
            [](const SignalHandle& self, uint16_t kind, uint32_t device, const std::optional<std::vector<int32_t>>& allowed, uint32_t notify_kind,
               uint32_t count) {
                const Grant grant{.kind = static_cast<Kind>(kind), .device = device, .notify_kind = notify_kind, .count = count};
                const ExportKey key = self.signal->offer(grant, !allowed, self.signal);
                if (allowed) allow_all(key, *allowed);
                return std::make_pair(key.index, key.nonce);
            },
            "kind"_a, "device"_a, "allowed"_a.none(), "notify_kind"_a, "count"_a, nb::call_guard<GilReleased>(),
            "Let processes open it: those with the pids `allowed`, or all of the user.  Return (index, nonce).")
        .def(
            "let_go", &SignalHandle::let_go, "This process offers it to nobody any more, and has opened it once less.")
        .def(
            "belong_to", [](const SignalHandle& self, const MembersHandle& of, uint32_t recorder) { self.signal->belong_to(of.members, recorder); }, "members"_a,
            "recorder"_a, "Waits here end too when one of a group's processes is lost, and when the rank that records here has left the group.")
        .def("expect", [](const SignalHandle& self, const UndeliveredHandle& from) { self.signal->expect(from.by); }, "undelivered"_a,
             "The process that records in this bank delivers late: a wait delivers its entries, also if that process has ended.")
        .def("issue", [](const SignalHandle& self) { return self.signal->issue(); }, "The number of a new record of an event.")
        .def_prop_ro("issued", [](const SignalHandle& self) { return self.signal->issued(); })
        .def(
            "is_done", [](const SignalHandle& self, uint64_t number) { return self.signal->record_line(number).recorded() >= number; },
            "number"_a)
        .def(
            "has_failed",
            [](const SignalHandle& self, uint64_t number) { return self.signal->record_line(number).generation.load() == number; },
            "number"_a)
        .def(
            "time_ns", [](const SignalHandle& self, uint64_t number) { return self.signal->record_line(number).time_ns.load(); },
            "number"_a)
        .def_prop_ro(
            "lost_to", [](const SignalHandle& self) { return self.signal->lost_to(); },
            "The pid of a process that has ended, when no other one that had it lives; else 0.")
        .def(
            "record_of",
            [](const SignalHandle& self, uint64_t number, uint32_t device) {
                return new HeldNotify{Notify::record_of(self.signal, number, device)};
            },
            "number"_a, "device"_a, nb::rv_policy::take_ownership, "What stands for one record of an event.");

    m.def(
        "members",
        [](const SignalHandle& membership, const std::vector<std::tuple<uint32_t, int32_t, uint64_t>>& listed,
           const std::vector<std::tuple<uint32_t, uint64_t>>& far) {
            const auto members = std::make_shared<Members>(membership.signal);
            for (const auto& [rank, pid, start] : listed) {
                if (rank >= membership.signal->bank()) throw nb::index_error("no line for this rank");
                members->add(rank, pid, start);
            }
            for (const auto& [rank, name] : far) {
                if (rank >= membership.signal->bank()) throw nb::index_error("no line for this rank");
                members->add_far(rank, name);
            }
            return new MembersHandle{members};
        },
        "membership"_a, "listed"_a, "far"_a, nb::rv_policy::take_ownership,
        "Watch the processes (rank, pid, start time), and those of other machines (rank, number of peerlane.diagnostics.ranks.losses); rank i "
        "records line i of `membership` when it leaves.");

    nb::class_<LeaseHandle>(m, "Lease", "Whether memory that was lent to others may still be used.")
        .def("__init__", [](LeaseHandle* self) { new (self) LeaseHandle{std::make_shared<Lease>()}; }, "Of this process alone.")
        .def(
            "__init__",
            [](LeaseHandle* self, const SignalHandle& bank, uint32_t line, uint64_t number) {
                if (line >= bank.signal->bank()) throw nb::index_error("no such line in the bank");
                if (number == 0 || number >= Lease::kMostNumbers) throw nb::index_error("no number of a lease");
                new (self) LeaseHandle{std::make_shared<Lease>(bank.signal, line, number)};
            },
            "bank"_a, "line"_a, "number"_a, "Line `line` of a bank, while it has this number.")
        .def_prop_ro("id", [](const LeaseHandle& self) { return self.lease->id; }, "Unique in the process.")
        .def("begin", [](const LeaseHandle& self) { self.lease->begin(); }, "Its owner's, once.")
        .def("take_back", [](const LeaseHandle& self, const Memory& memory) {
            self.lease->end(Lease::taken_back);
            log_lease(log::Kind::taken_back, *self.lease, memory);
        }, "memory"_a, "End it; its owner's.")
        .def("end_with", [](const LeaseHandle& self, const Memory& memory) {
            memory.end_with(self.lease);
            log_lease(log::Kind::lent, *self.lease, memory);
        }, "memory"_a,
             "End it when the memory is freed; its owner's.")
        .def("lend", [](const LeaseHandle& self, Memory& memory, bool mapped) { memory.borrow(self.lease, mapped); }, "memory"_a,
             "mapped"_a, "Refuse uses of a buffer once it has ended; `mapped`: by address too.")
        .def_prop_ro("has_ended", [](const LeaseHandle& self) { return self.lease->ended() != Lease::live; });

    nb::class_<CompletionsHandle>(m, "Completions", "The completion queue of one end of a channel.")
        .def(
            "__init__",
            [](CompletionsHandle* self, const SignalHandle* bank) {
                if (bank && bank->signal->bank() != Completions::kLines) throw nb::value_error("a queue has so many lines");
                new (self) CompletionsHandle{bank ? std::make_shared<Completions>(bank->signal) : std::make_shared<Completions>()};
            },
            "bank"_a.none(), "In a bank of COMPLETION_LINES; without one it is this process's alone.");
    m.attr("COMPLETION_LINES") = Completions::kLines;

    nb::class_<ChannelLinesHandle>(m, "ChannelLines", "The notifies of one direction of a channel, each made when it is first used.")
        .def(
            "__init__",
            [](ChannelLinesHandle* self, int kind, uint32_t count, uint32_t device, const SignalHandle* bank) {
                if (bank && bank->signal->bank() < count) throw nb::index_error("more notifies than the bank has lines");
                new (self) ChannelLinesHandle{
                    std::make_shared<ChannelLines>(static_cast<NotifyKind>(kind), count, device, bank ? bank->signal : nullptr)};
            },
            "kind"_a, "count"_a, "device"_a, "bank"_a.none(), "In a bank of as many lines; without one they are this process's alone.")
        .def(
            "__init__",
            [](ChannelLinesHandle* self, const CompletionsHandle& queue, uint32_t count, uint32_t device) {
                if (count > Completions::kMostNumbers) throw nb::index_error("more notifies than a queue tells apart");
                new (self) ChannelLinesHandle{std::make_shared<ChannelLines>(queue.queue, count, device)};
            },
            "queue"_a, "count"_a, "device"_a, "Those of a completion queue.")
        .def("__len__", [](const ChannelLinesHandle& self) { return self.lines->count; })
        .def_prop_ro("first_id", [](const ChannelLinesHandle& self) { return self.lines->first_id; }, "The others have the ids behind it; 0: there are none.")
        .def("unconsumed", [](const ChannelLinesHandle& self) { return self.lines->unconsumed(); }, "Those that were recorded more often than consumed.")
        .def("abandon", [](const ChannelLinesHandle& self) { self.lines->abandon(); },
             "Say that only what is queued already will record them: waits in vain fail.");
    m.def("first_id_of", &ChannelLines::first_id_of, "id"_a,
          "Return the first id of the channel's notifies to which an id belongs; the id itself, if it is of another notify.");
    nb::class_<HeldNotify>(m, "Notify", "A signal line, used by this process.")
        .def(
            "__init__",
            [](HeldNotify* self, int kind, uint32_t device) {
                new (self) HeldNotify{Notify::local(static_cast<NotifyKind>(kind), device)};
                if (log::wanted()) [[unlikely]] log_new_notify(*self->shared, 0, 0);
            },
            "kind"_a, "device"_a, "`kind`: 0 binary, 1 fifo, 2 strict.")
        .def_prop_ro("id", [](const HeldNotify& self) { return self.shared->id; })
        .def(
            "__init__",
            [](HeldNotify* self, int kind, uint32_t device, const SignalHandle& signal, uint32_t index) {
                if (index != 0 && index >= signal.signal->bank()) throw nb::index_error("no such line in the bank");
                new (self) HeldNotify{Notify::local(static_cast<NotifyKind>(kind), device)};
                Scheduler::get().share(*self->shared, signal.signal, false, index);
                if (signal.signal->bank() == 0 && log::wanted()) [[unlikely]] log_new_notify(*self->shared, 0, 0);
            },
            "kind"_a, "device"_a, "signal"_a, "index"_a = 0, "One that another process made, or a line of a bank.")
        .def(
            "__init__",
            [](HeldNotify* self, const ChannelLinesHandle& of, uint32_t number) {
                if (number >= of.lines->count) throw nb::index_error("the channel has no such notify");
                Notify& notify = of.lines->at(number);
                notify.hold();
                new (self) HeldNotify{&notify};
            },
            "lines"_a, "number"_a, "One of those of a channel.")
        .def(
            "__init__",
            [](HeldNotify* self, const HeldNotify& line, const LateAreaHandle& in, uint64_t entry, bool staged) {
                if (!line.shared->shared() || (!staged && line.shared->kind != NotifyKind::binary)) throw nb::value_error("not a line of a bank");
                if (entry >= LateArea::kEntries) throw nb::index_error("no such entry");
                new (self) HeldNotify{Notify::late_record(*line.shared, in.area, entry, staged)};
            },
            "line"_a, "area"_a, "entry"_a, "staged"_a, "A record of a line of a bank, as an entry of an area of late delivery.")
        .def(
            "_share",
            [](const HeldNotify& self, const LedgerHandle& ledger) {
                Scheduler::get().use_bell(ledger.ledger);
                if (!self.shared->shared()) {
                    Scheduler::get().share(*self.shared, SharedSignal::create(ledger.ledger), true);
                    if (log::wanted()) [[unlikely]] log_new_notify(*self.shared, 0, self.shared->id);
                }
                return new SignalHandle{self.shared->sharing(), false};
            },
            "ledger"_a, nb::rv_policy::take_ownership, "Let other processes record it and wait for it.")
        .def(
            "_withdraw",
            [](const HeldNotify& self) {
                SharedSignal* const with = self.shared->shared();
                if (!with || with->bank() != 0) return;
                const GilReleased gil;
                with->abandon();
            },
            "This process offers it to nobody any more.")
        .def_prop_ro("recorded", [](const HeldNotify& self) { return self.shared->signal().recorded(); })
        .def_prop_ro("consumed", [](const HeldNotify& self) { return self.shared->signal().consumed.load(); })
        .def("_record", [](const HeldNotify& self) { record_now(*self.shared); }, "Record now, outside of any stream.")
        .def("_promise", [](const HeldNotify& self) { Scheduler::get().promise(*self.shared); },
             "Say that it will be recorded, whatever is cancelled: a stream that closes waits for it.")
        .def("_reset", [](const HeldNotify& self) {
            note_site();
            Scheduler::get().reset(*self.shared);
        });
}
