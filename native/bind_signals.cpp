// Signals that processes share: notifies and events given to others, and theirs.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include "bind_signals.h"
#include "shared_signal.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

std::shared_ptr<SharedSignal> created(const LedgerHandle& ledger) {
    Scheduler::get().use_bell(ledger.ledger);
    return SharedSignal::create(ledger.ledger);
}

}  // namespace

std::shared_ptr<SharedSignal> open_signal(const Offer& offer, const LedgerHandle& ledger) {
    Scheduler::get().use_bell(ledger.ledger);
    return SharedSignal::open(offer.fd, ledger.ledger);
}

void bind_signals(nb::module_& m) {
    m.attr("SHARED_RECORDS") = SharedSignal::kRecords;
    nb::class_<SignalHandle>(m, "Signal", "What processes share of a notify or an event.")
        .def(
            "__init__", [](SignalHandle* self, const LedgerHandle& ledger) { new (self) SignalHandle{created(ledger), true}; },
            "ledger"_a)
        .def(
            "offer",
            [](const SignalHandle& self, uint16_t kind, uint32_t device, uint64_t detail, bool everyone) {
                const Grant grant{.kind = static_cast<Kind>(kind), .device = device, .detail = {detail}};
                const Ticket ticket = self.signal->offer(grant, everyone, self.signal);
                return std::make_pair(ticket.index, ticket.nonce);
            },
            "kind"_a, "device"_a, "detail"_a, "everyone"_a, nb::call_guard<GilReleased>(), "Return (index, nonce).")
        .def(
            "let_go", &SignalHandle::let_go, "This process offers it to nobody any more, and has opened it once less.")
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
}
