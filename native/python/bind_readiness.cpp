// Waits for the descriptors of events by Python's own select, poll, epoll and read, for the event log.
//
// The function behind each of these calls is replaced in its method table: so an alias that the program took before
// (`from select import select`, `selectors`, loops of asyncio and trio) tells the log too, and no object or type changes.
#include <array>
#include <vector>

#include <nanobind/stl/vector.h>

#include "python/bind.h"
#include "python/bind_signals.h"
#include "stream/ready_descriptors.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

using Fast = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);
using FastWithKeywords = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

void note_seen(PyObject* descriptor) {
    const int fd = PyObject_AsFileDescriptor(descriptor);
    if (fd < 0) return PyErr_Clear();
    if (!ready_descriptors::are_any()) return;
    note_site();
    ready_descriptors::note_seen(fd);
}

// What the calls return.
enum Answer : size_t { kLists, kPairs, kBytes, kAnswers };   // select; a poll or epoll object; a read of the descriptor

void note_answer(Answer kind, PyObject* const* words, Py_ssize_t count, PyObject* answer) {
    if (kind == kLists) {
        PyObject* const readable = PyTuple_Check(answer) && PyTuple_GET_SIZE(answer) > 0 ? PyTuple_GET_ITEM(answer, 0) : nullptr;
        for (Py_ssize_t i = 0; readable && PyList_Check(readable) && i < PyList_GET_SIZE(readable); ++i)
            note_seen(nb::borrow(PyList_GET_ITEM(readable, i)).ptr());
    } else if (kind == kPairs) {
        for (Py_ssize_t i = 0; PyList_Check(answer) && i < PyList_GET_SIZE(answer); ++i) {
            PyObject* const pair = PyList_GET_ITEM(answer, i);
            if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) note_seen(PyTuple_GET_ITEM(pair, 0));
        }
    } else if (count > 0) {
        note_seen(words[0]);
    }
}

constexpr size_t kMostCalls = 6;
struct Followed {
    PyCFunction plain = nullptr;
    Answer answer = kLists;
};
std::array<Followed, kMostCalls> followed;
size_t followed_calls = 0;

void note(const Followed& call, PyObject* const* words, Py_ssize_t count, PyObject* answer) {
    if (answer && ready_descriptors::are_any()) [[unlikely]] note_answer(call.answer, words, count, answer);
}

template <size_t I>
PyObject* call_fast(PyObject* self, PyObject* const* words, Py_ssize_t count) {
    PyObject* const answer = reinterpret_cast<Fast>(reinterpret_cast<void*>(followed[I].plain))(self, words, count);
    note(followed[I], words, count, answer);
    return answer;
}

template <size_t I>
PyObject* call_with_keywords(PyObject* self, PyObject* const* words, Py_ssize_t count, PyObject* names) {
    PyObject* const answer = reinterpret_cast<FastWithKeywords>(reinterpret_cast<void*>(followed[I].plain))(self, words, count, names);
    note(followed[I], words, count, answer);
    return answer;
}

struct Replacement {
    void *fast, *with_keywords;
};
template <size_t... I>
constexpr std::array<Replacement, sizeof...(I)> replacements(std::index_sequence<I...>) {
    return {Replacement{reinterpret_cast<void*>(&call_fast<I>), reinterpret_cast<void*>(&call_with_keywords<I>)}...};
}

// False: another interpreter has other calls there; what it waits for is known by the time at which the descriptor became readable.
bool follow(PyObject* callable, Answer answer) {
    PyMethodDef* method = nullptr;
    if (PyCFunction_Check(callable)) method = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
    if (Py_TYPE(callable) == &PyMethodDescr_Type) method = reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
    if (!method || followed_calls == kMostCalls) return false;
    static const auto with = replacements(std::make_index_sequence<kMostCalls>());
    const int convention = method->ml_flags & ~(METH_CLASS | METH_STATIC | METH_COEXIST);
    void* const replacement = convention == METH_FASTCALL ? with[followed_calls].fast
                              : convention == (METH_FASTCALL | METH_KEYWORDS) ? with[followed_calls].with_keywords
                                                                              : nullptr;
    if (!replacement) return false;
    followed[followed_calls++] = {method->ml_meth, answer};
    method->ml_meth = reinterpret_cast<PyCFunction>(replacement);
    return true;
}

}  // namespace

void bind_readiness(nb::module_& m) {
    m.def(
        "follow_readiness",
        [](nb::handle select, const std::vector<nb::object>& polls, const std::vector<nb::object>& reads) {
            bool all = follow(select.ptr(), kLists);
            for (const nb::object& each : polls) all = follow(each.ptr(), kPairs) && all;
            for (const nb::object& each : reads) all = follow(each.ptr(), kBytes) && all;
            return all;
        },
        "select"_a, "polls"_a, "reads"_a,
        "Let calls that see that an event's descriptor is readable tell the event log; once, and for good.  False: not all could be followed.");
}
