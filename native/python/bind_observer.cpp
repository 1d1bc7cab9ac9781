// What this process reads of its own logs: an observer's, which is handed over as soon as somebody with the GIL comes by, and a
// trace's, which is taken when the program asks.
#include <nanobind/stl/tuple.h>

#include <memory>
#include <system_error>

#include "log/reader.h"
#include "memory/memory.h"
#include "python/bind.h"
#include "stream/logged.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

using ReaderPtr = std::shared_ptr<log::Reader>;

PyObject* hook = nullptr;   // strong
uint64_t order_before = 0, last_order = 0;   // of the logs before the present one, and of the last event passed on

// A record that stays what it is while others are read.
struct Taken {
    log::Head head;
    uint64_t words[4], at;
    std::vector<log::Span> spans;

    explicit Taken(const log::Record& record) : head(record.head), at(record.at), spans(record.spans, record.spans + record.head.spans) {
        std::copy(std::begin(record.words), std::end(record.words), words);
    }
};

// The reader of the log that there is: a forked child has a new one.  Under the GIL.
ReaderPtr reader_of(uint8_t by) {
    static auto& observer = *new ReaderPtr;
    static auto& trace = *new ReaderPtr;
    ReaderPtr& known = by == log::kObserver ? observer : trace;
    const log::Facts now = log::facts(by);
    if (now.path.empty())
        known.reset();
    else if (!known || known->start_ns() != now.start_ns) {
        known = std::make_shared<log::Reader>(now.path, true);
        known->map();
        if (by == log::kObserver) order_before = last_order + 1;
    }
    return known;
}

void begin(uint8_t by, uint64_t capacity) {
    try {
        log::begin_in_process(by, capacity);
    } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
}

void end(uint8_t by) {
    log::end(by);
    reader_of(by);
}

nb::tuple as_tuple(const Taken& taken) {
    nb::list spans;
    for (const log::Span& span : taken.spans)
        spans.append(nb::make_tuple(span.block & ~log::Span::kWritten, span.offset, span.size, (span.block & log::Span::kWritten) != 0));
    const log::Head& head = taken.head;
    const uint64_t order = order_before + taken.at;
    last_order = std::max(last_order, order);
    return nb::make_tuple(static_cast<int>(head.kind), order, head.op, head.site, head.stream, head.sequence, taken.words[0], taken.words[1], spans);
}

void write_notice(log::Notice kind, log::Object what, uint64_t id, uint64_t stream, uint64_t sequence, const log::Spans& spans) noexcept {
    log::write({.kind = log::Kind::noticed, .op = static_cast<uint8_t>(kind), .stream = stream, .sequence = sequence,
                .a = static_cast<uint64_t>(what), .b = id, .spans = &spans, .site = 0},
               log::kObserver);
}

}  // namespace

// Throws nothing: the event has happened, and a caller that caught an error would give its pins back once more.  To make
// arguments may run the program, which comes here again, or takes the observer away.
void log_for_observer() noexcept {
    const nb::error_scope raised;   // views go while exceptions pass
    try {
        const ReaderPtr reader = reader_of(log::kObserver);
        if (!reader) return;
        reader->look();
        while (const log::Record* const record = reader->next(true)) {
            const Taken taken(*record);
            try {
                const nb::object event = as_tuple(taken), called = nb::borrow(hook);
                if (called) called(event);
            } catch (nb::python_error& error) {
                error.discard_as_unraisable("peerlane observer");
            }
        }
        if (reader->kept() >= log::kRoom) reader->give_back();
    } catch (const std::exception&) {
        // No memory for the arguments.
    }
}

void log_view_for_observer(const Memory& memory, bool opened) {
    if (!log::is_read(log::kObserver)) return;
    try {
        log::Spans spans;
        if (const char* host = memory.view_address()) add_span(spans, host, memory.size(), true);
        write_notice(opened ? log::Notice::view : log::Notice::unview, log::Object::buffer, memory.id(), 0, 0, spans);
    } catch (const std::bad_alloc&) {
        log::drop(log::kObserver);
    }
    log_for_observer();
}

void bind_observer(nb::module_& m) {
    const auto numbers = [](const auto& names) {
        nb::dict numbers;
        for (size_t i = 0; i < std::size(names); ++i) numbers[names[i]] = i;
        return numbers;
    };
    m.attr("LOG_NOTICES") = numbers(log::kNoticeNames);
    m.attr("LOG_OBJECTS") = numbers(log::kObjectNames);
    m.def(
        "observe",
        [](nb::object called, uint64_t capacity) {
            if (!called.is_none()) begin(log::kObserver, capacity);
            const nb::object before = nb::steal(std::exchange(hook, called.is_none() ? nullptr : called.release().ptr()));
            if (!hook) end(log::kObserver);
        },
        "called"_a.none(), "capacity"_a,
        nb::sig("def observe(called: collections.abc.Callable[..., None] | None, capacity: int) -> None"),
        "Call it with a tuple (kind, order, op, site, stream, sequence, a, b, spans) for each event of the observer's log, of so many bytes; with None, end "
        "that log.  OSError if it cannot be made.");
    m.def("tell_observer", [] { log_if_observed(); }, "Hand over what is new.");
    m.def(
        "notice",
        [](int kind, int what, uint64_t id, const Memory* memory, uint64_t stream, uint64_t sequence) {
            log::Spans spans;
            try {   // held: another thread may close it meanwhile
                if (memory) {
                    const Operand held("address", memory->last_address(), memory->size(), memory->pin());
                    if (!held.is_pageable()) add_span(spans, held.host(), memory->size(), false);
                }
            } catch (const Refusal&) {
                // Nothing of it lives.
            }
            write_notice(static_cast<log::Notice>(kind), static_cast<log::Object>(what), id, stream, sequence, spans);
            log_if_observed();
        },
        "kind"_a, "what"_a, "id"_a, "memory"_a.none(), "stream"_a, "sequence"_a, "Tell the observer of something that is not an operation.");
    m.def("log_site_of", &log_site_of, "number"_a, nb::sig("def log_site_of(number: int) -> tuple[types.CodeType, int] | None"),
          "Code and offset of a line's number.");

    m.def("trace_begin", [](uint64_t capacity) { begin(log::kTrace, capacity); }, "capacity"_a, "Keep so many bytes of events; OSError if there is no room.");
    m.def("trace_end", [] { end(log::kTrace); });
    m.def(
        "trace_take",
        [] {
            nb::list ended, waits;
            const ReaderPtr reader = reader_of(log::kTrace);
            if (!reader) return nb::make_tuple(ended, waits, 0);
            reader->look();
            while (const log::Record* const record = reader->next(true)) {
                const Taken taken(*record);
                const log::Head& head = taken.head;
                const auto [a, b, c, d] = taken.words;
                if (head.kind == log::Kind::op_ended)
                    ended.append(nb::make_tuple(c, head.stream, head.sequence, name_of(static_cast<OpKind>(head.op)), b, a, head.time_ns));
                else if (head.kind == log::Kind::event_wait && head.stream != a)
                    waits.append(nb::make_tuple(head.stream, head.sequence, a, b));
            }
            reader->give_back();
            return nb::make_tuple(ended, waits, reader->dropped());
        },
        nb::sig("def trace_take() -> tuple[list[tuple[int, int, int, str, int, int, int]], list[tuple[int, int, int, int]], int]"),
        "((device, stream, sequence, kind, bytes, start ns, end ns), ...) and ((stream, sequence, awaited stream, its operation), ...) since the "
        "last call, and how many events were dropped.");
}
