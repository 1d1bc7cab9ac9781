#pragma once
#include <nanobind/nanobind.h>

void bind_memory(nanobind::module_& m);
void bind_copies(nanobind::module_& m);
void bind_reference(nanobind::module_& m);

// The GIL is given away for the life of this object.  CPython before 3.14 ends a daemon thread that comes back
// for the GIL during finalization by unwinding it, which C++ answers with an abort: after `interpreter_exits`
// such threads wait for the end of the process here instead.
class GilReleased {
  public:
    GilReleased();
    ~GilReleased();
    GilReleased(const GilReleased&) = delete;
    GilReleased& operator=(const GilReleased&) = delete;

  private:
    PyThreadState* state_;
};

// Called with the GIL by the thread that finalizes, as late as Python allows.
void interpreter_exits();
