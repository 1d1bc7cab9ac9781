// Buffers of the host that Python classes export: before 3.12 a Python method cannot.
#include "python/bind.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

// The view belongs to the inner object, so nothing of ours is asked when it is released.
int get_inner_buffer(PyObject* self, Py_buffer* view, int flags) {
    view->obj = nullptr;
    PyObject* const inner = PyObject_CallMethod(self, "_exported", nullptr);
    if (!inner) return -1;
    // An object that returns itself makes no Python frame deeper: only this ends it.
    int status = Py_EnterRecursiveCall(" while exporting a buffer");
    if (status == 0) {
        status = PyObject_GetBuffer(inner, view, flags);
        Py_LeaveRecursiveCall();
    }
    Py_DECREF(inner);
    return status;
}

PyObject* refuse_exported(PyObject* self, PyObject*) {
    PyErr_Format(PyExc_NotImplementedError, "%s has no _exported() that returns an object with a buffer",
                 Py_TYPE(self)->tp_name);
    return nullptr;
}

PyMethodDef exporter_methods[] = {
    {"_exported", refuse_exported, METH_NOARGS, "Return an object with the buffer that this one exports."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot exporter_slots[] = {
    {Py_tp_doc, const_cast<char*>("Base of classes that export the buffer of what their _exported() returns.")},
    {Py_tp_methods, exporter_methods},
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_inner_buffer)},
    {0, nullptr}};

PyType_Spec exporter_spec = {"peerlane._core.Exporter", sizeof(PyObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, exporter_slots};

}  // namespace

void bind_export(nb::module_& m) {
    // No class of nanobind's: making an object shall cost no more than one of Python's own.
    m.attr("Exporter") = nb::steal(PyType_FromSpec(&exporter_spec));
    m.def(
        "buffer_of",
        [](nb::handle object) -> nb::object {
            if (!PyObject_CheckBuffer(object.ptr())) return nb::none();
            Py_buffer view;
            if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_ANY_CONTIGUOUS) != 0) throw nb::python_error();
            nb::object fields = nb::make_tuple(reinterpret_cast<uint64_t>(view.buf), static_cast<int64_t>(view.len), view.readonly != 0);
            PyBuffer_Release(&view);
            return fields;
        },
        "object"_a.none(), nb::sig("def buffer_of(object: object) -> tuple[int, int, bool] | None"),
        "Return (address, bytes, read-only) of an object's buffer, None where it has none.");
    m.def("memory_at", &Memory::at, "address"_a, "size"_a,
          "Return the bytes of whatever lives at an address now; refuses pageable host memory.");
}
