// The interpreter that answers the calls of C programs: the one of this process, or one that is started here.
//
// Nothing links to libpython, which a system may lack: each function is looked up by its name.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>

namespace peerlane::c_abi {

#define PEERLANE_PYTHON_FUNCTIONS(X)                                                                                         \
    X(Py_DecRef) X(Py_GetVersion) X(Py_InitializeFromConfig) X(Py_IsInitialized) X(Py_PreInitialize) X(PyPreConfig_InitPythonConfig)                     \
    X(PyConfig_Clear) X(PyConfig_InitPythonConfig) X(PyConfig_SetBytesArgv) X(PyConfig_SetBytesString) \
    X(PyDict_GetItemString) X(PyErr_Clear) X(PyErr_ExceptionMatches) X(PyErr_Print) X(PyErr_SetInterrupt) \
    X(PyEval_GetGlobals) X(PyEval_SaveThread) X(PyFloat_AsDouble) X(PyFloat_FromDouble)                \
    X(PyGC_Disable) X(PyGILState_Check) X(PyGILState_Ensure) X(PyGILState_GetThisThreadState) X(PyGILState_Release)  \
    X(PyImport_ImportModule) X(PyLong_AsUnsignedLongLongMask) X(PyLong_FromLongLong)                 \
    X(PyLong_FromUnsignedLongLong) X(PyObject_CallFunction) X(PyObject_GetAttrString)                \
    X(PyObject_Vectorcall) X(PyOS_AfterFork_Child) X(PyOS_AfterFork_Parent) X(PyOS_BeforeFork)       \
    X(PyStatus_Exception) X(PyUnicode_AsUTF8) X(PyWideStringList_Append)

struct Python {
#define PEERLANE_DECLARE(name) decltype(&::name) name = nullptr;
    PEERLANE_PYTHON_FUNCTIONS(PEERLANE_DECLARE)
#undef PEERLANE_DECLARE
    int (*is_finalizing)() = nullptr;
    PyObject* const* keyboard_interrupt = nullptr;
    bool is_own = false;

    // It has begun to end, or has ended: a thread that asks for the GIL then is ended.
    bool is_over() const { return !Py_IsInitialized() || is_finalizing(); }
};

// The interpreter; null, and once a sentence on stderr, if there is none that can be used.
Python* python();

// While it lives no thread forks: for imports, whose locks nobody would open in the child.  It is made without the GIL.
class Unforked {
public:
    explicit Unforked(Python& python);
    ~Unforked();
    Unforked(const Unforked&) = delete;

private:
    bool is_on_;
};

// The folder that has the peerlane of this library.
std::string site_packages();

// Whether the program made this thread, and not Python.
bool is_thread_of_c(Python& python);

// Let Python see the forks of C from now on.  What peerlane's native modules do at a fork must be registered before: in a
// child it comes before what Python does, as in a fork of Python.
void see_forks();

// While it lives, the end of a program's Python waits for this thread, which may take the GIL; or Python ends, and it must not.
class Call {
public:
    explicit Call(Python& python);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    bool is_allowed() const { return is_allowed_; }

private:
    bool is_counted_ = false, is_allowed_ = true;
};

// The GIL, while it lives.  The state of a thread that C made stays until the thread ends, with what is Python's of the
// thread: else each call would be the first of a new thread.
class Gil {
public:
    explicit Gil(Python& python);
    ~Gil() { python_.PyGILState_Release(state_); }
    Gil(const Gil&) = delete;
    Gil& operator=(const Gil&) = delete;

private:
    Python& python_;
    PyGILState_STATE state_;
};

}  // namespace peerlane::c_abi
