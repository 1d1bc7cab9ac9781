// What observers are told.  Submissions are told at once, by the thread that submits; starts are kept until somebody
// asks, because whoever runs an operation must not take the GIL.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "memory/memory.h"
#include "python/bind.h"
#include "stream/scheduler.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

PyObject* submitted_hook = nullptr;   // strong

nb::list as_list(const std::vector<Seen::Span>& spans) {
    nb::list found;
    for (const auto& span : spans) found.append(nb::make_tuple(span.block, span.offset, span.size, span.written));
    return found;
}

nb::object as_tuple(const Seen& seen) {
    return nb::make_tuple(seen.order, seen.stream, seen.sequence, name_of(seen.kind), as_list(seen.spans),
                          seen.notify, seen.record);
}

// What happened has happened, and who was told that it did not would give its pins back once more: nothing is thrown.
template <class Make>
void tell(const Make& make) noexcept {
    const nb::error_scope raised;   // views go while exceptions pass
    try {
        const nb::object what = make();
        const nb::object hook = nb::borrow(submitted_hook);
        if (hook) hook(what);   // `make` may have run the program, which took the observer away
    } catch (nb::python_error& error) {
        error.discard_as_unraisable("peerlane observer");
    } catch (const std::exception&) {
        // No memory to tell it with.
    }
}

}  // namespace

bool is_observed() { return submitted_hook != nullptr; }

void tell_submitted(const Seen& seen) {
    tell([&seen] { return as_tuple(seen); });
}

void tell_submitted(const StreamHandle& stream, const Op& op, const Submitted& done) {
    Seen seen{.order = done.order, .stream = stream.stream->id, .sequence = done.sequence, .kind = op.kind};
    add_signals(seen, op, false);
    tell_submitted(seen);
}

void tell_view(const Memory& memory, bool opened) {
    tell([&memory, opened] {
        Seen seen{.order = Scheduler::get().next_order(), .sequence = memory.id()};
        if (const char* host = memory.view_address()) add_host_span(seen.spans, host, memory.size(), true);
        return nb::make_tuple(seen.order, 0, seen.sequence, opened ? "view" : "unview", as_list(seen.spans), 0, 0);
    });
}

void tell_complete(OpKind kind, std::initializer_list<const Operand*> written, std::initializer_list<const Operand*> read) {
    Seen seen{.order = Scheduler::get().next_order(), .kind = kind};
    for (const Operand* operand : written) add_host_span(seen.spans, operand->host(), operand->size, true);
    for (const Operand* operand : read) add_host_span(seen.spans, operand->host(), operand->size, false);
    tell_submitted(seen);
    seen.order = Scheduler::get().next_order();
    Scheduler::get().note(std::move(seen));
}

void bind_observer(nb::module_& m) {
    m.def(
        "set_observer",
        [](nb::object hook) {
            PyObject* before = submitted_hook;
            submitted_hook = hook.is_none() ? nullptr : hook.release().ptr();
            Scheduler::get().observing.store(submitted_hook != nullptr, std::memory_order_relaxed);
            Py_XDECREF(before);
        },
        "hook"_a.none(), nb::sig("def set_observer(hook: collections.abc.Callable[[typing.Any], None] | None) -> None"),
        "Call hook((order, stream, operation, kind, spans, notify, record)) for every submission.");
    m.def(
        "take_started",
        [] {
            nb::list found;
            for (const Seen& seen : Scheduler::get().take_seen()) found.append(as_tuple(seen));
            return found;
        },
        nb::sig("def take_started() -> list[typing.Any]"), "What started since the last call, as submissions are told.");
    m.def("next_order", [] { return Scheduler::get().next_order(); });
}
