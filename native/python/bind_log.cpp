// The event log, as Python begins, ends and writes it, and the lines of the program that its events name.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <opcode.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <unordered_map>

#include "log/reader.h"
#include "log/outside.h"
#include "log/threads.h"
#include "python/bind_signals.h"
#include "python/frames.h"
#include "stream/history.h"
#include "stream/logged.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr size_t kFrames = 4;            // the line that called, and its callers
constexpr size_t kMostSites = 100'000;   // from then on callers do not tell sites apart: a recursion has no end of them

struct SiteKey {
    PyObject* called = nullptr;   // peerlane's function; a line of a module in C may call many
    const char* operation = nullptr;   // of another library: its name
    std::array<PyObject*, kFrames> codes{};
    std::array<int, kFrames> offsets{};
    uint32_t launch = 0;          // of an operation of a graph: the site of the launch
    bool operator==(const SiteKey&) const = default;
};
struct SiteHash {
    size_t operator()(const SiteKey& key) const {
        uint64_t hash = reinterpret_cast<uintptr_t>(key.called) >> 4 ^ reinterpret_cast<uintptr_t>(key.operation) << 8 ^ static_cast<uint64_t>(key.launch) << 32;
        for (size_t i = 0; i < kFrames; ++i)
            hash = (hash ^ (reinterpret_cast<uintptr_t>(key.codes[i]) >> 4) ^ static_cast<uint64_t>(key.offsets[i]) << 40) * 0x9E3779B97F4A7C15;
        return hash ^ hash >> 32;
    }
};
struct Site {
    SiteKey key;
    uint32_t number = 0;
    uint64_t log = 0;   // which one has its name
    std::string call;   // what was called there, as members of a JSON object
};
// All sites.  Their code objects are held as long as the process lives.
std::unordered_map<SiteKey, Site, SiteHash>& sites() {
    static auto& by_key = *new std::unordered_map<SiteKey, Site, SiteHash>;
    return by_key;
}
// Number n is in place n - 1.
std::vector<const Site*>& sites_by_number() {
    static auto& by_number = *new std::vector<const Site*>;
    return by_number;
}
// Those that were seen last, by their hash.
std::array<const Site*, 1 << 12>& recent_sites() {
    static auto& recent = *new std::array<const Site*, 1 << 12>{};
    return recent;
}

// Code that was seen last, and whose it is: to ask costs more than all else here.
enum class Owner : uint8_t { peerlane, library, program };

struct KnownCode {
    PyObject* code = nullptr;   // strong
    Owner owner = Owner::program;
};
Owner owner_of(const Frame& frame, PyObject* code) {
    static auto& known = *new std::array<KnownCode, 1 << 10>;
    KnownCode& recent = known[reinterpret_cast<uintptr_t>(code) / 64 % known.size()];
    if (recent.code == code) [[likely]] return recent.owner;
    const nb::error_scope raised;   // objects go while exceptions pass
    const Owner owner = is_ours_or_contexts(frame) ? Owner::peerlane : is_of_library(code) ? Owner::library : Owner::program;
    const nb::object old = nb::steal(std::exchange(recent.code, Py_NewRef(code)));   // its end may come here again
    recent.owner = owner;
    return owner;
}
bool is_own_frame(const Frame& frame, PyObject* code) { return owner_of(frame, code) == Owner::peerlane; }

std::string text_of(PyObject* object) {
    Py_ssize_t length;
    const char* const text = object ? PyUnicode_AsUTF8AndSize(object, &length) : nullptr;
    if (text) return {text, static_cast<size_t>(length)};
    PyErr_Clear();
    return "?";
}

PyObject* name_of(PyObject* code) {
#if PY_VERSION_HEX >= 0x030B0000
    return reinterpret_cast<PyCodeObject*>(code)->co_qualname;
#else
    return reinterpret_cast<PyCodeObject*>(code)->co_name;
#endif
}

std::string frame_text(PyObject* object, int offset) {
    auto* const code = reinterpret_cast<PyCodeObject*>(object);
    const int line = PyCode_Addr2Line(code, offset);
    return "[" + log::quoted(text_of(code->co_filename)) + ", " + std::to_string(line > 0 ? line : code->co_firstlineno) + ", " +
           log::quoted(text_of(name_of(object))) + "]";
}

// What the program calls, as members of a JSON object: of peerlane.dialects the package and the function, and whether the end of a `with` block calls.
std::string current_call() {
    constexpr std::string_view kDialects = "peerlane.dialects.";
    std::string_view dialect;
    nb::object called, outermost;
    Frame frame;
    for (; frame && is_own_frame(frame, frame.code()); frame.go_back()) {
        outermost = nb::borrow(name_of(frame.code()));
        const std::string_view module = module_of(frame);
        if (!module.starts_with(kDialects)) continue;
        called = nb::borrow(name_of(frame.code()));
        const std::string_view name = module.substr(kDialects.size());
        if (name[0] != '_') dialect = name.substr(0, name.find('.'));
    }
    const std::string name = outermost ? text_of(outermost.ptr()) : "";
    const std::string with_end = name.ends_with("__exit__") || name.ends_with("__aexit__") ? ", \"with_end\": true" : "";
    if (dialect.empty()) return with_end;
    return with_end + ", \"dialect\": " + log::quoted(std::string(dialect)) + ", \"call\": " + log::quoted(text_of(called.ptr()));
}

// Whether an exception is handled, other than one that ends the program as it wishes, and whether a `with` block calls that it leaves: as
// members of a JSON object.
std::string current_failure(const SiteKey& key) {
#if PY_VERSION_HEX >= 0x030B0000
    const nb::object raised = nb::steal(PyErr_GetHandledException());
#else
    PyObject *kind = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_GetExcInfo(&kind, &value, &trace);
    const nb::object raised = nb::steal(value), of_kind = nb::steal(kind), of_trace = nb::steal(trace);
#endif
    if (!raised || raised.is_none() || PyErr_GivenExceptionMatches(raised.ptr(), PyExc_SystemExit)) return "";
    for (size_t i = 0; i < kFrames && key.codes[i]; ++i) {
#if PY_VERSION_HEX >= 0x030B0000
        const nb::object code = nb::steal(PyCode_GetCode(reinterpret_cast<PyCodeObject*>(key.codes[i])));
#else
        const nb::object code = nb::borrow(reinterpret_cast<PyCodeObject*>(key.codes[i])->co_code);
#endif
        if (code && PyBytes_Check(code.ptr()) && key.offsets[i] >= 0 && key.offsets[i] < PyBytes_GET_SIZE(code.ptr()) &&
            static_cast<uint8_t>(PyBytes_AS_STRING(code.ptr())[key.offsets[i]]) == WITH_EXCEPT_START)
            return ", \"handled\": true, \"failing\": true";
    }
    PyErr_Clear();
    return ", \"handled\": true";
}

std::string frames_text(const SiteKey& key) {
    std::string text = "[";
    for (size_t i = 0; i < kFrames && key.codes[i]; ++i) {
        if (i) text += ", ";
        text += frame_text(key.codes[i], key.offsets[i]);
    }
    return text + "]";
}

void write_site(const Site& site) {
    std::string line = "{\"site\": " + std::to_string(site.number) + ", \"frames\": " + frames_text(site.key) + site.call;
    if (site.key.launch) line += ", \"launched\": " + frames_text(sites_by_number()[site.key.launch - 1]->key);
    log::write_name(line + current_failure(site.key) + "}");
}

// `call` returns what is called there; it is asked once.
template <class Call>
uint32_t find_site(const SiteKey& key, const Call& call) {
    const Site*& recent = recent_sites()[SiteHash{}(key) % recent_sites().size()];
    const uint64_t now = log::number.load(std::memory_order_relaxed);
    if (recent && recent->log == now && recent->key == key) [[likely]] return recent->number;
    const nb::error_scope raised;
    Site& site = sites()[key];
    if (site.number == 0) {
        site.key = key;
        site.call = call();
        sites_by_number().push_back(&site);
        site.number = static_cast<uint32_t>(sites_by_number().size());
        Py_XINCREF(key.called);
        for (PyObject* code : key.codes) Py_XINCREF(code);
    }
    if (site.log != now) {
        site.log = now;
        write_site(site);
    }
    recent = &site;
    return site.number;
}

void add_operand(log::Spans& spans, const Operand& operand, bool written) { add_span(spans, operand.host(), operand.size, written); }

template <class Work>
void or_dropped(const Work& work) noexcept {
    try {
        note_site();
        work();
    } catch (const std::exception&) {
        log::drop();
    }
}

// What is over when the call returns.  `add` adds its spans, for one of these readers.
template <class Add>
void write_complete(OpKind kind, const Add& add, uint8_t readers = log::kAnyone) noexcept {
    note_site();
    for (const uint8_t by : {log::kChecker, log::kObserver}) {
        if (!(readers & by)) continue;
        if (by == log::kChecker ? !log::wanted() : !log::is_read(by)) continue;
        try {
            log::Spans spans;
            add(spans, by);
            if (by == log::kChecker)
                log::write({.kind = log::Kind::access, .op = static_cast<uint8_t>(kind), .flags = log::context.flags, .a = log::context.channel, .spans = &spans});
            else
                log_seen_now(kind, spans);
        } catch (const std::exception&) {
            log::drop(by);
        }
    }
    log_if_observed();
}

// Of the innermost frame that is not left out.
template <class LeavesOut>
uint32_t log_site_outside(const LeavesOut& leaves_out, const LibraryCall& call = {}, PyThreadState* of = PyThreadState_Get()) {
    try {
        Frame frame(of);
        SiteKey key;
        key.operation = call.name;
        for (; frame && leaves_out(frame, frame.code()); frame.go_back())
            if (!call.name) key.called = frame.code();
        if (!frame) return 0;
        const size_t most = sites().size() < kMostSites ? kFrames : 1;
        bool has_program = most == 1;
        for (size_t i = 0; i < most && frame; ++i) {
            if (i) do frame.go_back(); while (frame && is_own_frame(frame, frame.code()));
            if (!frame) break;
            key.codes[i] = frame.code();
            key.offsets[i] = frame.offset();
            has_program = has_program || owner_of(frame, frame.code()) == Owner::program;
        }
        if (!has_program) {   // libraries call one another: the last frame is the program's that called the first of them
            while (frame && owner_of(frame, frame.code()) != Owner::program) frame.go_back();
            if (frame) {
                key.codes[most - 1] = frame.code();
                key.offsets[most - 1] = frame.offset();
            }
        }
        if (!call.name) return find_site(key, current_call);
        return find_site(key, [&] { return ", \"dialect\": " + log::quoted(call.library) + ", \"call\": " + log::quoted(call.name); });
    } catch (const std::exception&) {
        return 0;
    }
}

}  // namespace

uint32_t log_site() { return log_site_outside(is_own_frame); }

namespace {

bool is_installed_or_own(const Frame& frame, PyObject* code) { return is_own_frame(frame, code) || is_installed(code); }

}  // namespace

uint32_t log_site_of_program() {
    const uint32_t site = log_site_outside(is_installed_or_own);
    return site ? site : log_site();
}

uint32_t log_site_of_library(const LibraryCall& call, PyThreadState* of) {
    const uint32_t site = log_site_outside(is_installed_or_own, call, of);
    return site ? site : log_site_outside(is_own_frame, call, of);
}

// Of an operation of a graph: where it was added, and where the graph is launched.
uint32_t log_site_launched(uint32_t added, uint32_t launch) {
    const size_t known = sites_by_number().size();
    if (added == 0 || launch == 0 || added > known || launch > known || known >= kMostSites) return launch;
    SiteKey key = sites_by_number()[added - 1]->key;
    key.launch = launch;
    return find_site(key, [added] { return sites_by_number()[added - 1]->call; });
}

nb::object log_site_of(uint32_t number) {
    if (number == 0 || number > sites_by_number().size()) return nb::none();
    const SiteKey& key = sites_by_number()[number - 1]->key;
    return nb::make_tuple(nb::borrow(key.codes[0]), key.offsets[0]);
}

// What a loop that waits copies to memory of the host it looks at, as at a word of a view.
void log_look(const Operand& to, const Operand& from) noexcept {
    or_dropped([&] {
        log::Spans spans;
        add_operand(spans, from, false);
        uint64_t value = 0;
        // Another thread may unmap pageable bytes that no object holds.
        const bool has_value = from.size <= sizeof value && (to.is_mapped || !to.is_pageable());
        if (has_value) memcpy(&value, to.host(), from.size);
        log::write({.kind = log::Kind::host_access, .flags = log::kPolled, .a = value, .b = has_value ? from.size : 0, .spans = &spans});
    });
}

void log_complete(OpKind kind, const Operand& to, const Operand* from, uint8_t readers) noexcept {
    note_site();
    const bool may_look = kind == OpKind::copy && log::wanted() && to.range().device == kHost;
    const uint8_t look = may_look ? flags_of_look(to.size) : uint8_t{0};
    const bool is_look = look == log::kPolled;
    if (is_look) log_look(to, *from);
    const Marked marked(is_look ? uint8_t{0} : look);
    write_complete(
        kind,
        [&](log::Spans& spans, uint8_t by) {
            add_operand(spans, to, true);
            if (kind == OpKind::reduce && by == log::kObserver) add_operand(spans, to, false);
            if (from && !(is_look && by == log::kChecker)) add_operand(spans, *from, false);
        },
        readers);
}

void log_rectangle(const Operand& dst, uint64_t dst_pitch, const Operand& src, uint64_t src_pitch, uint64_t width, uint64_t height) {
    write_complete(OpKind::copy_2d, [&](log::Spans& spans, uint8_t by) {
        if (by == log::kObserver) {
            add_span(spans, dst.host(), dst_pitch * (height - 1) + width, true);
            add_span(spans, src.host(), src_pitch * (height - 1) + width, false);
            return;
        }
        add_rows(spans, dst.host(), dst_pitch, width, height, true);
        add_rows(spans, src.host(), src_pitch, width, height, false);
    });
}

void log_batch(const Batch& batch, const Operand* table) {
    write_complete(table ? OpKind::descriptor : OpKind::batch, [&](log::Spans& spans, uint8_t) {
        if (table) add_operand(spans, *table, false);
        add_spans(spans, batch.pieces);
    });
}

bool log_alias(const Memory& memory) noexcept {
    if (const Frame frame; !frame || is_own_frame(frame, frame.code())) return false;   // a view, which tells itself, or peerlane's own
    log_alias(memory.view_address(), memory.size(), Alias::of_buffer);
    return true;
}

void log_alias(const char* host, uint64_t size, Alias what) noexcept {
    if (!host || !log::wanted()) return;
    or_dropped([&] {
        if (what != Alias::end) note_site();
        log::Spans spans;
        add_span(spans, host, size, false);
        const uint8_t flags = what == Alias::end ? log::kEnd : is_poll() ? log::kPolled : 0;
        log::write({.kind = log::Kind::view, .flags = flags, .a = what == Alias::of_view, .spans = &spans});
    });
}

void log_waited_now(const Notify& notify, uint64_t number) {
    or_dropped([&] {
        note_past(PastOf::notify, notify.id, {0, 0, log::context.site, OpKind::wait_notify});
        const auto [bank, line] = line_address(notify);
        log::write({.kind = log::Kind::notify_wait, .a = bank, .b = line, .c = number, .d = log::context.channel});
    });
}

void log_sync(uint64_t stream, uint64_t sequence) {
    note_site();
    log_known(stream, sequence);
}

void log_known(uint64_t stream, uint64_t sequence) {
    Scheduler::get().look_at_sources(stream, sequence);
    log::write({.kind = log::Kind::sync, .stream = stream, .sequence = sequence});
}

void log_new_notify(const Notify& notify, uint64_t incoming, uint64_t before) {
    or_dropped([&] {
        const auto [bank, line] = line_address(notify);
        log::write({.kind = log::Kind::notify_made, .sequence = before, .a = bank, .b = line, .c = static_cast<uint64_t>(notify.kind),
                    .d = incoming});
    });
}

void log_of_channel(log::Kind kind, uint64_t channel, const StreamHandle* stream) {
    or_dropped([&] {
        log::write({.kind = kind, .stream = stream ? stream->stream->id : 0,
                    .sequence = stream ? stream->stream->submitted.load(std::memory_order_relaxed) : 0, .a = channel});
    });
}

namespace {

nb::tuple as_tuple(const log::Record& record) {
    nb::list spans, rows;
    for (uint32_t i = 0; i < record.head.spans; ++i) {
        const log::Span& span = record.spans[i];
        spans.append(nb::make_tuple(span.block & ~log::Span::kWritten, span.offset, span.size, (span.block & log::Span::kWritten) != 0));
        if (record.rows) rows.append(nb::make_tuple(record.rows[i].pitch, record.rows[i].width, record.rows[i].height));
    }
    const log::Head& head = record.head;
    return nb::make_tuple(static_cast<int>(head.kind), head.flags, head.op, head.site, head.thread, head.repeats, head.time_ns, head.stream,
                          head.sequence, nb::make_tuple(record.a(), record.b(), record.c(), record.d()), spans, rows);
}

}  // namespace

void bind_log(nb::module_& m) {
    m.def(
        "log_begin",
        [](const std::string& directory, uint64_t capacity, int rank, uint64_t total, uint64_t machine, uint64_t clock) {
            log::set_origin(machine, clock);
            try {
                const bool begun = log::begin(directory, capacity, rank, total);
                log::follow_threads();
                log::follow_outside();
                return begun;
            } catch (const std::system_error& error) {
                errno = error.code().value();
                PyErr_SetFromErrnoWithFilename(PyExc_OSError, directory.c_str());
                throw nb::python_error();
            }
        },
        "directory"_a, "capacity"_a, "rank"_a, "total"_a = UINT64_MAX, "machine"_a = 0, "clock"_a = 0,
        "Begin the log of this process there, which names its machine and its clock; False if there is one.  All logs there hold `total` bytes at most.  OSError if it cannot be made.");
    nb::dict kinds;
    for (size_t i = 0; i < std::size(log::kKindNames); ++i) kinds[log::kKindNames[i]] = i;
    m.attr("LOG_KINDS") = kinds;
    nb::list ops;
    for (int op = 0; op <= static_cast<int>(OpKind::file); ++op) ops.append(name_of(static_cast<OpKind>(op)));
    m.attr("LOG_OPS") = nb::tuple(ops);
    static constexpr auto log_rest = [] {
        const log::ByNoLine of_nobody;
        if (Heap::is_created() && !Heap::get().is_forked() && log::is_read(log::kChecker)) Scheduler::get().log_rest();
    };
    log::before_exit.store(log_rest, std::memory_order_release);
    m.def("log_end", [] {
        log_rest();
        log::end();
    }, "End it: the process leaves in an orderly way.");
    m.def(
        "log_facts",
        [] {
            const log::Facts facts = log::facts();
            return nb::make_tuple(facts.path, facts.written, facts.dropped, facts.capacity);
        },
        nb::sig("def log_facts() -> tuple[str, int, int, int]"), "(path, bytes written, events dropped, capacity); the path is empty if there is no log.");
    m.def(
        "log_past",
        [](bool is_notify, uint64_t id) {
            nb::list listed;
            for (const Past& past : past_of(is_notify ? PastOf::notify : PastOf::stream, id))
                listed.append(nb::make_tuple(past.stream, past.sequence, name_of(past.kind), log_site_of(past.site)));
            return listed;
        },
        "is_notify"_a, "id"_a,
        nb::sig("def log_past(is_notify: bool, id: int) -> list[tuple[int, int, str, tuple[types.CodeType, int] | None]]"),
        "(stream, sequence, kind, place) of the last logged operations of a stream, or records of a notify and waits for it; oldest first.");
    m.def("log_settle", [] { log::settle(); }, "Let a reader see the newest event.");
    m.def("log_name", [](const std::string& line) { log::write_name(line); }, "line"_a, "Add a JSON object to the names.");
    m.def("log_site", [] { return log::wanted() ? log_site() : 0; }, "The number of the program's line that is calling.");
    m.def("log_site_of_program", [] { return log::wanted() ? log_site_of_program() : 0; }, "The number of the line that called libraries that are installed.");
    m.def("log_site_launched", &log_site_launched, "added"_a, "launch"_a,
          "The number for an operation of a graph: the line that added it, and the one that launches the graph.");
    m.def("log_fix", [](uint32_t site) { return std::exchange(log::context.fixed, site); }, "site"_a,
          "Let this thread's events have this line, 0: that of the call; return what was set before.");
    m.def("log_follow_outside", &log::follow_outside, "See what modules that were loaded since send and receive, and the shared mappings of a forked child.");
    m.def("log_outputs", &log::set_outputs, "files"_a, "Device and inode of each file that is an output of the whole run.");
    m.def("log_changed_file", &log::note_changed_file, "The program changes a file, which others may look at.");
    m.def("log_looked_at", [](const nb::bytes& path) { log::note_looked_at(path.c_str()); }, "path"_a, "The program looks at a file, or tries to.");
    m.def("log_hush", [](bool on) { log::context.quiet += on ? 1 : -1; }, "on"_a, "Log nothing that this thread does, until as many calls with False.");
    m.def("log_wanted", [] { return log::wanted(); }, "Whether the log is to have what this thread does.");
    m.def("log_free_ends", [](bool on) { log::context.of_free = on ? log::kEnd : 0; }, "on"_a,
          "What this thread frees from now on has no bytes any more: not for what is queued, nor for who opened it.");
    m.def(
        "log_event",
        [](int kind, uint64_t stream, uint64_t sequence, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint8_t flags,
           const std::vector<const Memory*>& written, const std::vector<const Memory*>& read,
           const std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>& blocks) {
            if (!log::wanted()) return;
            or_dropped([&] {
                log::Spans spans;
                const auto add = [&](const Memory& memory, bool is_written) {
                    const Range range = memory.pin();
                    add_span(spans, range.host, memory.size(), is_written);
                    Heap::get().unpin(range);
                };
                for (const Memory* each : written) add(*each, true);
                for (const Memory* each : read) add(*each, false);
                for (const auto& [block, offset, size] : blocks) spans.add(block, offset, size, true);
                const bool is_access = static_cast<log::Kind>(kind) == log::Kind::access;
                if (is_access) a = log::context.channel;
                log::write({.kind = static_cast<log::Kind>(kind), .flags = is_access ? log::context.flags : flags, .stream = stream, .sequence = sequence, .a = a, .b = b, .c = c,
                            .d = d, .spans = &spans});
            });
        },
        "kind"_a, nb::kw_only(), "stream"_a = 0, "sequence"_a = 0, "a"_a = 0, "b"_a = 0, "c"_a = 0, "d"_a = 0, "flags"_a = 0,
        "written"_a = std::vector<const Memory*>{}, "read"_a = std::vector<const Memory*>{},
        "places"_a = std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>{},
        nb::sig("def log_event(kind: int, *, stream: int = 0, sequence: int = 0, a: int = 0, b: int = 0, c: int = 0, d: int = 0, flags: int = 0, "
                "written: collections.abc.Sequence[Memory] = ..., read: collections.abc.Sequence[Memory] = ..., "
                "places: collections.abc.Sequence[tuple[int, int, int]] = ...) -> None"),
        "Write an event of the calling thread.  `places`: bytes on another machine that are written.");
    m.def(
        "live_blocks",
        [] {
            const GilReleased gil;
            return Heap::get().live_blocks();
        },
        "The blocks of live allocations and mappings, as events name them, and native code's numbers of their devices.");
    m.def(
        "log_places",
        [](const Memory& memory) {
            log::Spans spans;
            const Range range = memory.pin();
            add_span(spans, range.host, memory.size(), false);
            Heap::get().unpin(range);
            std::vector<std::tuple<uint64_t, uint64_t, uint64_t>> blocks;
            for (uint32_t i = 0; i < spans.size(); ++i) blocks.emplace_back(spans.data()[i].block, spans.data()[i].offset, spans.data()[i].size);
            return blocks;
        },
        "memory"_a, "Where memory lies, as events have it: blocks, offsets and sizes.");

    m.def(
        "log_late_notify",
        [](const StreamHandle* stream, const HeldNotify* notify, uint64_t far_bank, uint64_t far_line) {
            log::context.stream = log::context.sequence = 0;
            if (!stream || (!notify && far_bank == 0) || !log::wanted()) return;
            note_site();
            const auto [bank, line] = notify ? line_address(*notify->shared) : LineAddress{far_bank, far_line};
            const uint64_t sequence = stream->stream->submitted.load(std::memory_order_relaxed) + 1;
            log::write({.kind = log::Kind::notify, .op = static_cast<uint8_t>(OpKind::notify), .stream = stream->stream->id,
                        .sequence = sequence, .a = bank, .b = line, .d = log::context.channel});
            log::context.stream = stream->stream->id;
            log::context.sequence = sequence;
        },
        "stream"_a.none(), "notify"_a.none(), "far_bank"_a = 0, "far_line"_a = 0,
        "Log a notify of a stream, of this machine or the place of one of another; until the call with None, what this thread submits quietly makes its record.");

    nb::class_<log::Reader>(m, "LogReader", "Reads the events of a log, also of one that is being written.")
        .def(
            "__init__",
            [](log::Reader* self, const std::string& path, bool may_give_back) {
                try {
                    new (self) log::Reader(path, may_give_back);
                } catch (const log::BadLog& error) {
                    throw nb::value_error(error.what());
                }
            },
            "path"_a, "may_give_back"_a = false)
        .def(
            "take",
            [](log::Reader& self, bool also_open, uint64_t most) {
                nb::list records;
                try {
                    self.look();
                    while (nb::len(records) < most) {
                        const log::Record* const record = self.next(also_open);
                        if (!record) break;
                        records.append(as_tuple(*record));
                    }
                } catch (const log::BadLog& error) {
                    throw nb::value_error(error.what());
                }
                return records;
            },
            "also_open"_a = false, "most"_a = UINT64_MAX,
            nb::sig("def take(self, also_open: bool = False, most: int = ...) -> list[typing.Any]"),
            "(kind, flags, op, site, thread, repeats, time, stream, sequence, words, spans, rows) of the events since the last call.")
        .def("give_back", &log::Reader::give_back)
        .def_prop_ro("dropped", &log::Reader::dropped)
        .def_prop_ro("has_ended", &log::Reader::has_ended)
        .def_prop_ro("pid", &log::Reader::pid)
        .def_prop_ro("rank", &log::Reader::rank)
        .def_prop_ro("clock", &log::Reader::clock, "Which clock its times are of; 0: not known.")
        .def_prop_ro("since_epoch_ns", &log::Reader::since_epoch_ns, "The time of day at which that clock was 0.")
        .def("shift", &log::Reader::shift, "nanoseconds"_a, "Let all times that are read from now on be so much later.");
}
