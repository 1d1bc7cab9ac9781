// The program's frames on a thread's stack.
#pragma once
#include <nanobind/nanobind.h>

// Whether a frame runs code of peerlane, or of `contextlib`, which calls it.  Without an error set before or afterwards.
bool is_ours_or_contexts(PyFrameObject* frame);
// Of the instruction that it runs, in bytes.
#if PY_VERSION_HEX >= 0x030B0000
inline int offset_of(PyFrameObject* frame) { return PyFrame_GetLasti(frame); }
#else
inline int offset_of(PyFrameObject* frame) { return frame->f_lasti < 0 ? -1 : frame->f_lasti * 2; }
#endif
