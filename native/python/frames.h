// The program's frames on a thread's stack.
#pragma once
#include <nanobind/nanobind.h>

// The innermost frame outside peerlane, and outside `contextlib` if `beyond_contexts`; null: there is none on this thread's
// stack.
nanobind::object innermost_frame(bool beyond_contexts = false);
// Of the instruction that it runs, in bytes.
#if PY_VERSION_HEX >= 0x030B0000
inline int offset_of(PyFrameObject* frame) { return PyFrame_GetLasti(frame); }
#else
inline int offset_of(PyFrameObject* frame) { return frame->f_lasti < 0 ? -1 : frame->f_lasti * 2; }
#endif
