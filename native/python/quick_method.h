// Callables that native code serves where it can, without a Python frame, and a Python function otherwise.
#pragma once
#include <nanobind/nanobind.h>
#include <structmember.h>   // wants Python.h before it

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "memory/refusal.h"

// Null if it is none.
template <class Type>
Type* as(nanobind::handle object) {
    static const nanobind::handle type = nanobind::type<Type>();
    static PyTypeObject* known = nullptr;   // held: the class that was seen last; asking for bases takes longer than the rest
    PyTypeObject* const own = Py_TYPE(object.ptr());
    if (own != known) {
        if (!PyType_IsSubtype(own, reinterpret_cast<PyTypeObject*>(type.ptr()))) return nullptr;
        Py_INCREF(own);
        Py_XDECREF(std::exchange(known, own));
    }
    return nanobind::inst_ready(object) ? nanobind::inst_ptr<Type>(object) : nullptr;
}

// Arguments as CPython hands them over: those by name come last.
struct Arguments {
    PyObject* const* values;
    size_t positional;
    PyObject* names;

    size_t named() const { return names ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0; }
    nanobind::handle name(size_t i) const { return PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)); }
    nanobind::handle value(size_t i) const { return values[positional + i]; }
};

inline std::optional<uint64_t> number(nanobind::handle value) {
    if (!PyLong_CheckExact(value.ptr())) return std::nullopt;
    const unsigned long long number = PyLong_AsUnsignedLongLong(value.ptr());
    if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred()) {
        PyErr_Clear();
        return std::nullopt;
    }
    return number;
}

// What a quick way answers: whether it has served the call.  A refusal means that nothing has happened yet.
template <class Server>
PyObject* served_or(const Server& server, PyObject* otherwise, const Arguments& arguments, size_t flags) {
    try {
        if (server()) Py_RETURN_NONE;
    } catch (nanobind::python_error& error) {
        error.restore();
        return nullptr;
    } catch (const peerlane::Refusal&) {
        // The checked call says why.
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    } catch (const std::exception& error) {   // the interpreter calls this, and cannot unwind
        return PyErr_Format(PyExc_RuntimeError, "%s", error.what());
    }
    return PyObject_Vectorcall(otherwise, arguments.values, flags, arguments.names);
}

// `held`: objects that belong to it, of which the first is the Python function.
template <class Verb, size_t kHeld>
struct QuickMethod {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject* attributes;
    const Verb* verb;
    PyObject* held[kHeld];

    PyObject* otherwise() const { return held[0]; }

    static QuickMethod* make(PyTypeObject* type, vectorcallfunc call, const Verb& verb, const std::array<PyObject*, kHeld>& held) {
        auto* const method = reinterpret_cast<QuickMethod*>(type->tp_alloc(type, 0));
        if (!method) return nullptr;
        method->call = call;
        method->verb = &verb;
        for (size_t i = 0; i < kHeld; ++i) method->held[i] = Py_NewRef(held[i]);
        return method;
    }

    // `bind`: null, or what makes it a method of its class's objects.
    static nanobind::object type(const char* name, const char* doc, newfunc make, descrgetfunc bind) {
        static PyMemberDef members[] = {
            {"__vectorcalloffset__", T_PYSSIZET, offsetof(QuickMethod, call), READONLY, nullptr},
            {"__dictoffset__", T_PYSSIZET, offsetof(QuickMethod, attributes), READONLY, nullptr},
            {nullptr, 0, 0, 0, nullptr},
        };
        static PyGetSetDef properties[] = {
            {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
            {nullptr, nullptr, nullptr, nullptr, nullptr},
        };
        PyType_Slot slots[] = {
            {Py_tp_doc, const_cast<char*>(doc)},
            {Py_tp_new, reinterpret_cast<void*>(make)},
            {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
            {Py_tp_traverse, reinterpret_cast<void*>(visit)},
            {Py_tp_clear, reinterpret_cast<void*>(clear)},
            {Py_tp_dealloc, reinterpret_cast<void*>(drop)},
            {Py_tp_members, members},
            {Py_tp_getset, properties},
            {bind ? Py_tp_descr_get : 0, reinterpret_cast<void*>(bind)},
            {0, nullptr},
        };
        unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
        if (bind) flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
        PyType_Spec spec = {name, sizeof(QuickMethod), 0, flags, slots};
        return nanobind::steal(PyType_FromSpec(&spec));
    }

  private:
    static int visit(PyObject* self, visitproc visit, void* arg) {
        const auto* const method = reinterpret_cast<QuickMethod*>(self);
        for (PyObject* const each : method->held) Py_VISIT(each);
        Py_VISIT(method->attributes);
        Py_VISIT(Py_TYPE(self));
        return 0;
    }
    static int clear(PyObject* self) {
        auto* const method = reinterpret_cast<QuickMethod*>(self);
        for (PyObject*& each : method->held) Py_CLEAR(each);
        Py_CLEAR(method->attributes);
        return 0;
    }
    static void drop(PyObject* self) {
        PyObject_GC_UnTrack(self);
        clear(self);
        PyTypeObject* const type = Py_TYPE(self);
        type->tp_free(self);
        Py_DECREF(type);
    }
};
