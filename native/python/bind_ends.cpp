// An end of a channel, and its calls as programs make them most: served without a Python frame, which takes longer.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "python/bind_far.h"
#include "python/bind_operands.h"
#include "python/bind_signals.h"
#include "python/quick_method.h"
#include "stream/logged.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr Py_ssize_t kCopied = 4096;   // bytes of a host object: making Memory of it takes as long as the whole call
constexpr uint64_t kSpinNs = 50'000;   // a futex takes 18 to 31 us to wake somebody

// What the quick calls need; empty: they serve nothing.
struct ChannelEnd {
    nb::object window;
    nb::object incoming, outgoing;   // ChannelLines
    uint64_t number = 0;   // in the log; 0: it has none
    nb::object far;        // the peer is on another machine; then `window` and `outgoing` are empty
    uint64_t far_bytes = 0;   // of its window
    uint32_t far_window = 0, far_notifies = 0;
};

using Server = bool (*)(ChannelEnd&, const Arguments&);

struct Names {
    nb::handle at, memory, nonblocking, notify, stream, timeout;
};
const Names& names() {
    static const Names all{PyUnicode_InternFromString("at"), PyUnicode_InternFromString("memory"),
                           PyUnicode_InternFromString("nonblocking"),
                           PyUnicode_InternFromString("notify"), PyUnicode_InternFromString("stream"),
                           PyUnicode_InternFromString("timeout")};
    return all;
}

// Seconds, or None for ever.
bool is_timeout(nb::handle value) {
    if (PyFloat_CheckExact(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr()) >= 0;
    return value.is_none() || number(value);
}

// One of the lines, held: the end may be closed while the GIL is away.
HeldNotify line_at(const nb::object& lines, nb::handle index) {
    const auto position = number(index);
    if (!lines || !position) return {};
    ChannelLines& all = *nb::inst_ptr<ChannelLinesHandle>(lines)->lines;
    if (*position >= all.count) return {};
    Notify& notify = all.at(static_cast<uint32_t>(*position));
    notify.hold();
    return HeldNotify(&notify);
}

// Once something has happened a refusal is the program's to see.
template <class Work>
auto beyond_return(const Work& work) {
    try {
        return work();
    } catch (const Refusal& refusal) {
        raise_refusal(refusal);
        throw nb::python_error();
    }
}

// The bytes are there, or queued.
void record_after(const StreamHandle* stream, const HeldNotify& line) {
    beyond_return([&] {
        if (stream)
            submit_notify(*stream, *line.shared);
        else
            record_now(*line.shared);
    });
}

// Few bytes of an object whose class shows that they are plain: no references to objects, nothing on a device.
class FewBytes {
  public:
    explicit FewBytes(nb::handle object) {
        if (!is_plain(object)) return;
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
            PyErr_Clear();
            return;
        }
        is_held_ = true;
        are_read_ = view_.len <= kCopied && !(view_.format && std::string_view(view_.format).find('O') != std::string_view::npos);
    }
    ~FewBytes() {
        if (is_held_) PyBuffer_Release(&view_);
    }
    FewBytes(const FewBytes&) = delete;

    explicit operator bool() const { return are_read_; }
    const char* data() const { return static_cast<const char*>(view_.buf); }
    uint64_t size() const { return static_cast<uint64_t>(view_.len); }

  private:
    static bool is_plain(nb::handle object) {
        if (PyBytes_CheckExact(object.ptr()) || PyByteArray_CheckExact(object.ptr())) return true;
        if (PyMemoryView_Check(object.ptr())) {
            PyObject* const exporter = PyMemoryView_GET_BASE(object.ptr());
            return exporter && !PyMemoryView_Check(exporter) && is_plain(exporter);
        }
        // The name of a class that a program defines has no module in it.
        return !PyType_HasFeature(Py_TYPE(object.ptr()), Py_TPFLAGS_HEAPTYPE) && Py_TYPE(object.ptr())->tp_name == std::string_view("numpy.ndarray");
    }

    Py_buffer view_{};
    bool is_held_ = false, are_read_ = false;
};

// All of a buffer, or of a few bytes of the host, into the window of a rank on another machine.
bool serve_far_write(const ChannelEnd& end, const Arguments& arguments) {
    const Memory* const source = as<Memory>(arguments.values[1]);
    const StreamHandle* stream = nullptr;
    uint64_t at = 0;
    uint32_t notify = 0;
    for (size_t i = 0; i < arguments.named(); ++i) {
        const nb::handle name = arguments.name(i), value = arguments.value(i);
        const bool is_optional = name.is(names().stream) || name.is(names().notify) || name.is(names().memory);
        if (is_optional && value.is_none()) continue;
        const auto number_of_value = name.is(names().stream) ? std::nullopt : number(value);
        if (name.is(names().stream) && (stream = as<StreamHandle>(value))) continue;
        if (name.is(names().at) && number_of_value)
            at = *number_of_value;
        else if (name.is(names().notify) && number_of_value && *number_of_value < end.far_notifies)
            notify = static_cast<uint32_t>(*number_of_value) + 1;
        else
            return false;
    }
    const nb::object held = end.far;
    if (!source) {
        if (stream || log::wanted()) return false;   // the log says where the bytes lie
        const FewBytes bytes(arguments.values[1]);
        if (!bytes || at > end.far_bytes || bytes.size() > end.far_bytes - at) return false;
        return beyond_return([&] { return write_far_copied(*nb::inst_ptr<FarHandle>(held), end.far_window, at, bytes.data(), bytes.size(), notify); });
    }
    if (at > end.far_bytes || source->size() > end.far_bytes - at) return false;
    beyond_return([&] { write_far(*nb::inst_ptr<FarHandle>(held), stream, end.far_window, at, arguments.values[1], notify); });
    return true;
}

bool serve_write(ChannelEnd& end, const Arguments& arguments) {
    if (arguments.positional != 2) return false;
    const nb::handle src = arguments.values[1];
    if (end.far) return serve_far_write(end, arguments);
    const Memory* const source = as<Memory>(src);
    if (!source) return false;
    nb::object dst = end.window;
    HeldNotify line;
    const StreamHandle* stream = nullptr;
    uint64_t at = 0;
    for (size_t i = 0; i < arguments.named(); ++i) {
        const nb::handle name = arguments.name(i), value = arguments.value(i);
        if (name.is(names().at)) {
            const auto first = number(value);
            if (!first) return false;
            at = *first;
        } else if (value.is_none() && !name.is(names().at)) {
            if (!name.is(names().stream) && !name.is(names().notify) && !name.is(names().memory)) return false;
        } else if (name.is(names().notify)) {
            if (!(line = line_at(end.outgoing, value)).shared) return false;
        } else if (name.is(names().stream)) {
            if (!(stream = as<StreamHandle>(value))) return false;
        } else if (name.is(names().memory) && as<Memory>(value)) {
            dst = nb::borrow(value);
        } else {
            return false;
        }
    }
    if (!dst) return false;
    move_memory(stream, Memory(*nb::inst_ptr<Memory>(dst), at, source->size()), *source, dst, src);
    if (line.shared) record_after(stream, line);
    return true;
}

bool serve_notify(ChannelEnd& end, const Arguments& arguments) {
    const StreamHandle* stream = nullptr;
    for (size_t i = 0; i < arguments.named(); ++i) {
        if (!arguments.name(i).is(names().stream)) return false;
        const nb::handle value = arguments.value(i);
        if (value.is_none()) continue;
        if (!(stream = as<StreamHandle>(value))) return false;
    }
    if (arguments.positional != 2) return false;
    if (end.far) {
        const auto index = number(arguments.values[1]);
        if (!index || *index >= end.far_notifies) return false;
        const nb::object held = end.far;
        beyond_return([&] { notify_far(*nb::inst_ptr<FarHandle>(held), stream, static_cast<uint32_t>(*index)); });
        return true;
    }
    const HeldNotify line = line_at(end.outgoing, arguments.values[1]);
    if (line.shared) record_after(stream, line);
    return line.shared != nullptr;
}

bool serve_wait(ChannelEnd& end, const Arguments& arguments) {
    for (size_t i = 0; i < arguments.named(); ++i) {
        const nb::handle name = arguments.name(i), value = arguments.value(i);
        const bool is_right = name.is(names().timeout) ? is_timeout(value) : name.is(names().stream) && value.is_none();
        if (!is_right) return false;
    }
    if (arguments.positional != 2) return false;
    const HeldNotify line = line_at(end.incoming, arguments.values[1]);
    return line.shared && beyond_return([&] { return consume_now(line, kSpinNs); });   // it may consume, and fail
}

struct ChannelVerb {
    std::string_view name;
    Server server = nullptr;     // null: `otherwise` serves it
    uint8_t flags = 0;           // of its accesses in the event log
    log::Kind after = log::Kind::pad;   // the event when it is over
};
constexpr ChannelVerb kChannelVerbs[] = {
    {.name = "write", .server = serve_write},
    {.name = "notify", .server = serve_notify},
    {.name = "wait", .server = serve_wait},
    {.name = "read", .flags = log::kFetch},
    {.name = "write_reduce"},
    {.name = "read_reduce", .flags = log::kFetch},
    {.name = "write_blocks"},
    {.name = "read_blocks", .flags = log::kFetch},
    {.name = "fence", .after = log::Kind::fence},
    {.name = "drain", .after = log::Kind::drain},
};

using ChannelMethod = QuickMethod<ChannelVerb, 1>;

PyObject* serve(const ChannelMethod* method, const Arguments& arguments, size_t flags) {
    const auto server = [&] {
        ChannelEnd* const end = arguments.positional != 0 ? as<ChannelEnd>(arguments.values[0]) : nullptr;
        return end && method->verb->server && method->verb->server(*end, arguments);
    };
    return served_or(server, method->otherwise(), arguments, flags);
}

// The thread's events belong to a channel as long as this lives.
class Belonging {
  public:
    Belonging(uint64_t channel, uint8_t flags) : channel_(std::exchange(log::context.channel, channel)), flags_(std::exchange(log::context.flags, flags)) {}
    ~Belonging() {
        log::context.channel = channel_;
        log::context.flags = flags_;
    }
    Belonging(const Belonging&) = delete;

  private:
    const uint64_t channel_;
    const uint8_t flags_;
};

PyObject* serve_logged(const ChannelMethod* method, const Arguments& arguments, size_t flags) {
    const ChannelEnd* const end = arguments.positional != 0 ? as<ChannelEnd>(arguments.values[0]) : nullptr;
    const uint64_t number = end ? end->number : 0;
    const nb::object held = end ? nb::borrow(arguments.values[0]) : nb::object();
    const ChannelVerb& verb = *method->verb;
    bool is_loose = false;
    const StreamHandle* stream = nullptr;
    for (size_t i = 0; i < arguments.named(); ++i) {
        if (arguments.name(i).is(names().nonblocking)) is_loose = arguments.value(i).is(Py_True);
        if (arguments.name(i).is(names().stream)) stream = as<StreamHandle>(arguments.value(i));
    }
    const Belonging belonging(number, verb.flags | (is_loose ? log::kLoose : 0));
    if (verb.after == log::Kind::pad) return serve(method, arguments, flags);
    PyObject* result;
    if (verb.after == log::Kind::fence) {   // what it is made of says nothing more
        const log::Quiet quiet;
        result = serve(method, arguments, flags);
    } else {
        result = serve(method, arguments, flags);
    }
    if (result) log_of_channel(verb.after, number, stream);
    return result;
}

PyObject* call_method(PyObject* self, PyObject* const* values, size_t flags, PyObject* names) {
    const auto* const method = reinterpret_cast<ChannelMethod*>(self);
    const Arguments arguments{values, static_cast<size_t>(PyVectorcall_NARGS(flags)), names};
    if (log::wanted()) [[unlikely]] return serve_logged(method, arguments, flags);
    return serve(method, arguments, flags);
}

PyObject* bind_method(PyObject* self, PyObject* object, PyObject*) {
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

PyObject* make_method(PyTypeObject* type, PyObject* arguments, PyObject* named) {
    const char* name = nullptr;
    PyObject* otherwise = nullptr;
    static const char* keywords[] = {"way", "otherwise", nullptr};
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "sO", const_cast<char**>(keywords), &name, &otherwise)) return nullptr;
    const auto* const verb = std::find_if(std::begin(kChannelVerbs), std::end(kChannelVerbs), [&](const ChannelVerb& each) { return each.name == name; });
    if (verb == std::end(kChannelVerbs)) return PyErr_Format(PyExc_ValueError, "no way of this name: %s", name);
    return reinterpret_cast<PyObject*>(ChannelMethod::make(type, call_method, *verb, {otherwise}));
}

nb::object lines_or_none(nb::handle lines) {
    if (lines.is_none()) return {};
    if (!as<ChannelLinesHandle>(lines)) throw nb::type_error("not ChannelLines");
    return nb::borrow(lines);
}

// Their bank in the log.
uint64_t bank_of(ChannelLines& lines) { return lines.count == 0 ? 0 : line_address(lines.at(0)).bank; }

}  // namespace

void bind_ends(nb::module_& m) {
    nb::class_<ChannelEnd>(m, "ChannelEnd", "What the quick methods of a channel need of it.")
        .def(nb::init<>())
        .def(
            "_serve",
            [](ChannelEnd& self, nb::handle window, nb::handle incoming, nb::handle outgoing) {
                if (!window.is_none() && !as<Memory>(window)) throw nb::type_error("a window is Memory");
                static uint64_t next = 1;   // under the GIL
                self = {window.is_none() ? nb::object() : nb::borrow(window), lines_or_none(incoming), lines_or_none(outgoing), next++};
            },
            "window"_a.none(), "incoming"_a.none(), "outgoing"_a.none(),
            nb::sig("def _serve(self, window: Memory | None, incoming: ChannelLines | None, outgoing: ChannelLines | None) -> None"),
            "Let quick methods serve it; for None they serve nothing.")
        .def(
            "_serve_far",
            [](ChannelEnd& self, const nb::handle_t<FarHandle> end, uint32_t window, uint64_t nbytes, uint32_t notifies) {
                self.far = nb::borrow(end);
                self.far_window = window;
                self.far_bytes = nbytes;
                self.far_notifies = notifies;
            },
            "end"_a, "window"_a, "nbytes"_a, "notifies"_a,
            nb::sig("def _serve_far(self, end: FarEnd, window: int, nbytes: int, notifies: int) -> None"),
            "The same, to another machine: the number and the bytes of the peer's window, and how many notifies it has.")
        .def(
            "_serve_nothing",
            [](ChannelEnd& self) {
                const ChannelEnd last = std::exchange(self, {});
                forget_c_threads();
                if (last.number != 0 && log::wanted()) [[unlikely]] log_of_channel(log::Kind::channel_closed, last.number, nullptr);
            },
            "Let everything come to the methods in Python.")
        .def(
            "_log",
            [](const ChannelEnd& self, const ChannelLinesHandle& incoming, const ChannelLinesHandle* outgoing, uint32_t rank, uint32_t peer,
               uint64_t far_bank) {
                if (!log::wanted()) return;
                ChannelLines& ours = *incoming.lines;
                const uint64_t bank_of_peer = outgoing ? bank_of(*outgoing->lines) : far_bank;
                note_site();
                log::write({.kind = log::Kind::channel, .a = self.number, .b = bank_of(ours), .c = bank_of_peer, .d = uint64_t{rank} << 32 | peer});
                for (uint32_t i = 0; i < ours.count; ++i) log_new_notify(ours.at(i), i + 1, 0);
            },
            "incoming"_a, "outgoing"_a.none(), "rank"_a, "peer"_a, "far_bank"_a = 0,
            nb::sig("def _log(self, incoming: ChannelLines, outgoing: ChannelLines | None, rank: int, peer: int, far_bank: int = 0) -> None"),
            "Log that it was made, with its lines; `far_bank`: of the lines on another machine.");
    nb::list verbs;
    for (const ChannelVerb& verb : kChannelVerbs) verbs.append(nb::str(verb.name.data(), verb.name.size()));
    m.attr("CHANNEL_VERBS") = nb::tuple(verbs);
    m.attr("QuickMethod") =
        ChannelMethod::type("peerlane._core.QuickMethod", "A method of a ChannelEnd that native code serves where it can, and `otherwise` else.",
                            make_method, bind_method);
}
