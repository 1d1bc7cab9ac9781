// The program's frames on a thread's stack.
#pragma once
#include <nanobind/nanobind.h>

#include <string_view>
#include <utility>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define PEERLANE_BARE_FRAMES 1
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

// A frame of the calling thread, which has the GIL, or of one that waits without it; first the innermost one.  It lives as long as its function runs.
//
// CPython 3.11 makes a frame object only when somebody asks for it, and to make and end one costs more than all else that an
// event of the log needs.  So the frames are walked as the interpreter has them, where their layout is known.
class Frame {
  public:
#ifdef PEERLANE_BARE_FRAMES
    explicit Frame(PyThreadState* of = PyThreadState_Get()) : at_(complete(of->cframe->current_frame)) {}
    Frame(const Frame&) = delete;

    explicit operator bool() const { return at_ != nullptr; }
    void go_back() { at_ = complete(at_->previous); }
    PyObject* code() const { return reinterpret_cast<PyObject*>(at_->f_code); }   // as long as the frame lives
    PyObject* globals() const { return at_->f_globals; }
    int offset() const { return _PyInterpreterFrame_LASTI(at_) * static_cast<int>(sizeof(_Py_CODEUNIT)); }   // of its instruction, in bytes

  private:
    static _PyInterpreterFrame* complete(_PyInterpreterFrame* at) {
        while (at && _PyFrame_IsIncomplete(at)) at = at->previous;
        return at;
    }

    _PyInterpreterFrame* at_;
#else
    explicit Frame(PyThreadState* of = PyThreadState_Get()) : at_(PyThreadState_GetFrame(of)) {}
    ~Frame() { Py_XDECREF(at_); }
    Frame(const Frame&) = delete;

    explicit operator bool() const { return at_ != nullptr; }
    void go_back() { Py_DECREF(std::exchange(at_, PyFrame_GetBack(at_))); }
    PyObject* code() const {
        auto* const code = reinterpret_cast<PyObject*>(PyFrame_GetCode(at_));
        Py_DECREF(code);
        return code;
    }
#if PY_VERSION_HEX >= 0x030B0000
    PyObject* globals() const {
        PyObject* const globals = PyFrame_GetGlobals(at_);
        Py_DECREF(globals);
        return globals;
    }
    int offset() const { return PyFrame_GetLasti(at_); }
#else
    PyObject* globals() const { return at_->f_globals; }
    int offset() const { return at_->f_lasti < 0 ? -1 : at_->f_lasti * 2; }
#endif

  private:
    PyFrameObject* at_;
#endif
};

// The name of the module that a frame runs, as long as the frame lives; empty if it has none.
std::string_view module_of(const Frame& frame);

// Whether a frame runs code of peerlane, or of `contextlib`, which calls it.  Without an error set before or afterwards.
bool is_ours_or_contexts(const Frame& frame);

// Whether code belongs to a library that is installed beside peerlane.
bool is_installed(PyObject* code);

// Whether it belongs to such a library, or to Python's own.
bool is_of_library(PyObject* code);
