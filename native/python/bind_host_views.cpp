// NumPy arrays that tell which of their bytes the program reads and writes: the base of their class.
//
// It derives from numpy.ndarray without NumPy's headers: only what types inherit is used.  Here are the accesses to one element
// by its number, which programs make in loops; for all else the Python class that derives from it has methods.
#include <algorithm>
#include <cstring>
#include <exception>

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/bind.h"
#include "stream/host_destinations.h"
#include "stream/logged.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

enum HostAccess : uint8_t { kRead, kWritten, kUnknown };   // as in diagnostics/log/event_log.py

struct HostRow {
    uint64_t address, width, pitch, height;
};

// The value of an element, as NumPy returned it: up to 8 bytes.
struct Seen {
    uint64_t value = 0, width = 0;   // 0: not known
};
Seen seen_in(PyObject* scalar) {
    Seen seen;
    Py_buffer bytes;
    if (!scalar || PyObject_GetBuffer(scalar, &bytes, PyBUF_SIMPLE) != 0) {
        PyErr_Clear();
        return seen;
    }
    if (bytes.len > 0 && bytes.len <= static_cast<Py_ssize_t>(sizeof seen.value)) {
        memcpy(&seen.value, bytes.buf, static_cast<size_t>(bytes.len));
        seen.width = static_cast<uint64_t>(bytes.len);
    }
    PyBuffer_Release(&bytes);
    return seen;
}

PyObject* asks_for_lines = nullptr;      // kept for ever

}  // namespace

// Python reads the program's source, once for a line.
Line line_that_calls() noexcept {
    static auto& known = *new std::vector<Line>;   // by site
    const uint32_t site = log::context.site;
    if (site == 0 || !asks_for_lines) return Line::neither;
    try {
        if (known.size() <= site) known.resize(site + 1);
    } catch (const std::bad_alloc&) {
        return Line::neither;
    }
    if (known[site] == Line::unknown) {
        const nb::error_scope raised;
        PyObject* const answer = PyObject_CallNoArgs(asks_for_lines);
        const long line = answer ? PyLong_AsLong(answer) : 0;
        PyErr_Clear();
        Py_XDECREF(answer);
        if (known.size() <= site) return Line::neither;
        known[site] = line > 0 && line <= static_cast<long>(Line::hidden) ? static_cast<Line>(line) : Line::neither;
    }
    return known[site];
}

uint8_t flags_of_look(uint64_t size) noexcept {
    constexpr uint64_t most = 4096, most_hidden = 8;   // bytes; what reads more waits for no word
    if (size == 0 || size > most) return 0;
    const Line line = line_that_calls();
    return line == Line::polls ? log::kPolled : line == Line::hidden && size <= most_hidden ? log::kDoubtful : 0;
}

namespace {

void log_host_rows(HostAccess access, const HostRow* rows, size_t count, const Seen& seen = {}) noexcept {
    if (!log::wanted()) return;
    try {
        note_site();
        const uint8_t look = access == kRead && count == 1 && rows->height == 1 ? flags_of_look(rows->width) : uint8_t{0};
        logged_by_view = {UINTPTR_MAX, 0};
        for (const HostRow* row = rows; row != rows + count; ++row) {
            logged_by_view.low = std::min<uintptr_t>(logged_by_view.low, row->address);
            logged_by_view.high = std::max<uintptr_t>(logged_by_view.high, row->address + row->pitch * (row->height - 1) + row->width);
        }
        log::Spans spans;
        const bool is_plain = std::all_of(rows, rows + count, [](const HostRow& row) { return row.height == 1; });
        for (const HostRow* row = rows; row != rows + count; ++row) {
            const char* const host = reinterpret_cast<const char*>(row->address);
            if (is_plain)
                add_span(spans, host, row->width, access == kWritten);
            else
                add_rows(spans, host, row->pitch, row->width, row->height, access == kWritten);
        }
        const bool polls = look == log::kPolled;
        const uint8_t unknown = access == kUnknown && is_poll() ? log::kUnknown | log::kPolled : log::kUnknown;
        log::write({.kind = log::Kind::host_access, .flags = access == kUnknown ? unknown : look, .a = polls ? seen.value : 0, .b = polls ? seen.width : 0, .spans = &spans});
    } catch (const std::exception&) {
        log::drop();
    }
}

PyTypeObject* array_type = nullptr;   // numpy.ndarray; kept for ever, as the class below is
PyTypeObject* view_type = nullptr;

// Behind the fields of the array.  NumPy makes arrays with zeroed memory: no elements are known.
constexpr int kMostAxes = 4;
struct Elements {
    uint64_t address;   // of the first element
    int64_t width;      // bytes
    int axes;           // 0: the Python class is asked
    int64_t counts[kMostAxes], strides[kMostAxes];
};

Elements& elements_of(PyObject* self) {
    return *reinterpret_cast<Elements*>(reinterpret_cast<char*>(self) + array_type->tp_basicsize);
}

// 0: the Python class is to be asked, which also refuses.
uint64_t address_of(PyObject* self, PyObject* key) {
    const Elements& elements = elements_of(self);
    const bool is_tuple = PyTuple_CheckExact(key);
    if (elements.axes == 0 || elements.axes != (is_tuple ? PyTuple_GET_SIZE(key) : 1)) return 0;
    uint64_t address = elements.address;
    for (int axis = 0; axis < elements.axes; ++axis) {
        PyObject* const number = is_tuple ? PyTuple_GET_ITEM(key, axis) : key;
        if (!PyLong_CheckExact(number)) return 0;
        int beyond;
        int64_t index = PyLong_AsLongLongAndOverflow(number, &beyond);
        if (beyond != 0) return 0;
        if (index < 0) index += elements.counts[axis];
        if (index < 0 || index >= elements.counts[axis]) return 0;
        address += static_cast<uint64_t>(index * elements.strides[axis]);
    }
    return address;
}

void log_element(HostAccess access, uint64_t address, int64_t width) {
    const HostRow row{address, static_cast<uint64_t>(width), 0, 1};
    log_host_rows(access, &row, 1);
}

PyObject* get(PyObject* self, PyObject* key) {
    const uint64_t address = address_of(self, key);
    if (address == 0) return PyObject_CallMethod(self, "_get", "(O)", key);
    const HostRow row{address, static_cast<uint64_t>(elements_of(self).width), 0, 1};
    note_site();
    if (!log::wanted() || !is_poll()) {
        log_host_rows(kRead, &row, 1);
        return array_type->tp_as_mapping->mp_subscript(self, key);
    }
    // What the program sees is what the log has.
    PyObject* const element = array_type->tp_as_mapping->mp_subscript(self, key);
    log_host_rows(kRead, &row, 1, seen_in(element));
    return element;
}

int set(PyObject* self, PyObject* key, PyObject* value) {
    if (!value) return array_type->tp_as_mapping->mp_ass_subscript(self, key, value);   // raises
    const uint64_t address = PyObject_TypeCheck(value, view_type) ? 0 : address_of(self, key);
    if (address != 0) {
        log_element(kWritten, address, elements_of(self).width);
        return array_type->tp_as_mapping->mp_ass_subscript(self, key, value);
    }
    PyObject* const done = PyObject_CallMethod(self, "_set", "(OO)", key, value);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

PyObject* get_item(PyObject* self, Py_ssize_t index) {
    PyObject* const key = PyLong_FromSsize_t(index);
    PyObject* const value = key ? get(self, key) : nullptr;
    Py_XDECREF(key);
    return value;
}

int set_item(PyObject* self, Py_ssize_t index, PyObject* value) {
    PyObject* const key = PyLong_FromSsize_t(index);
    const int status = key ? set(self, key, value) : -1;
    Py_XDECREF(key);
    return status;
}

// What an exported buffer belongs to: who has it touches the bytes unseen until this is gone.
struct Loan {
    PyObject_HEAD
    PyObject* array;
    const char* host;
    uint64_t size;
};

void end_loan(PyObject* self) {
    PyTypeObject* const type = Py_TYPE(self);
    const Loan& loan = *reinterpret_cast<Loan*>(self);
    log_alias(loan.host, loan.size, Alias::end);
    Py_DECREF(loan.array);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyType_Slot loan_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(end_loan)}, {0, nullptr}};
PyType_Spec loan_spec = {"peerlane._core.Loan", sizeof(Loan), 0, Py_TPFLAGS_DEFAULT, loan_slots};
PyTypeObject* loan_type = nullptr;   // kept for ever

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    view->obj = nullptr;
    PyObject* const interval = log::wanted() ? PyObject_CallMethod(self, "_interval", nullptr) : nullptr;
    if (log::wanted() && !interval) return -1;
    const int status = array_type->tp_as_buffer->bf_getbuffer(self, view, flags);
    unsigned long long address = 0, size = 0;
    if (status == 0 && interval && PyArg_ParseTuple(interval, "KK", &address, &size) && size != 0) {
        if (Loan* const loan = PyObject_New(Loan, loan_type)) {
            *loan = {loan->ob_base, view->obj, reinterpret_cast<const char*>(address), size};
            view->obj = reinterpret_cast<PyObject*>(loan);
            log_alias(loan->host, size, Alias::of_view);
            if (keeps_buffer()) loan->host = nullptr;   // no end
        } else {
            PyErr_Clear();
        }
    }
    Py_XDECREF(interval);
    return status;
}

PyObject* know(PyObject* self, PyObject* words) {
    Elements known{};
    PyObject *counts = nullptr, *strides = nullptr;
    unsigned long long address = 0;
    long long width = 0;
    if (!PyArg_ParseTuple(words, "|KLO!O!", &address, &width, &PyTuple_Type, &counts, &PyTuple_Type, &strides)) return nullptr;
    if (strides && PyTuple_GET_SIZE(counts) <= kMostAxes && PyTuple_GET_SIZE(counts) == PyTuple_GET_SIZE(strides)) {
        known.address = address;
        known.width = width;
        known.axes = static_cast<int>(PyTuple_GET_SIZE(counts));
        for (int axis = 0; axis < known.axes; ++axis) {
            known.counts[axis] = PyLong_AsLongLong(PyTuple_GET_ITEM(counts, axis));
            known.strides[axis] = PyLong_AsLongLong(PyTuple_GET_ITEM(strides, axis));
        }
        if (PyErr_Occurred()) return nullptr;
    }
    elements_of(self) = known;
    Py_RETURN_NONE;
}

PyMethodDef view_methods[] = {
    {"_know", know, METH_VARARGS,
     "Tell accesses to single elements here: (address, bytes of an element, shape, strides); without arguments no longer."},
    {nullptr, nullptr, 0, nullptr}};

nb::object make_type(nb::handle ndarray) {
    if (view_type) return nb::borrow(reinterpret_cast<PyObject*>(view_type));
    array_type = reinterpret_cast<PyTypeObject*>(ndarray.inc_ref().ptr());
    loan_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&loan_spec));
    if (!loan_type) throw nb::python_error();
    PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("Base of the arrays that tell which bytes are read and written.")},
                           {Py_tp_methods, view_methods},
                           {Py_mp_subscript, reinterpret_cast<void*>(get)},
                           {Py_mp_ass_subscript, reinterpret_cast<void*>(set)},
                           {Py_sq_item, reinterpret_cast<void*>(get_item)},
                           {Py_sq_ass_item, reinterpret_cast<void*>(set_item)},
                           {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                           {0, nullptr}};
    PyType_Spec spec = {"peerlane._core.HostView", static_cast<int>(array_type->tp_basicsize + sizeof(Elements)), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    const nb::object bases = nb::make_tuple(nb::borrow(ndarray));
    nb::object new_type = nb::steal(PyType_FromSpecWithBases(&spec, bases.ptr()));
    if (!new_type.is_valid()) throw nb::python_error();
    view_type = reinterpret_cast<PyTypeObject*>(nb::object(new_type).release().ptr());
    return new_type;
}

}  // namespace

void bind_host_views(nb::module_& m) {
    m.def("host_view_type", &make_type, "ndarray"_a, nb::sig("def host_view_type(ndarray: type) -> type[typing.Any]"),
          "The base of the arrays that tell the event log what the host reads and writes.");
    m.def(
        "log_host_access",
        [](uint8_t access, uint64_t address, uint64_t width, uint64_t pitch, uint64_t height) {
            const HostRow row{address, width, pitch, height};
            log_host_rows(static_cast<HostAccess>(access), &row, 1);
        },
        "access"_a, "address"_a, "width"_a, "pitch"_a = 0, "height"_a = 1,
        "Log an access of the host that comes now: `height` rows of `width` bytes, `pitch` apart.");
    m.def(
        "log_alias", [](uint64_t address, uint64_t size, bool ends) { log_alias(reinterpret_cast<const char*>(address), size, ends ? Alias::end : Alias::of_view); },
        "address"_a, "size"_a, "ends"_a = false,
        "Log that the program takes, or gives back, an array on a view, whose accesses nobody tells.");
    m.def(
        "is_poll",
        [] {
            if (!log::wanted()) return false;
            note_site();
            return is_poll();
        },
        "Whether the line that calls is in a loop that waits for what it reads.");
    m.def(
        "ask_for_lines", [](nb::object ask) { Py_XSETREF(asks_for_lines, ask.release().ptr()); }, "ask"_a,
        "What tells, once for a line, what the line that calls does with what it reads: `polls.line`.");
    m.def(
        "log_host_look",
        [](uint64_t address, uint64_t width, nb::handle element) {
            const HostRow row{address, width, 0, 1};
            log_host_rows(kRead, &row, 1, seen_in(element.ptr()));
        },
        "address"_a, "width"_a, "element"_a, "Log a look of a waiting loop at an element, and what it saw.");
    m.def(
        "log_host_rows",
        [](uint8_t access, const std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>>& listed) {
            std::vector<HostRow> rows;
            for (const auto& [address, width, pitch, height] : listed) rows.push_back({address, width, pitch, height});
            log_host_rows(static_cast<HostAccess>(access), rows.data(), rows.size());
        },
        "access"_a, "rows"_a, "Log an access of the host to several such places as one event.");
}
