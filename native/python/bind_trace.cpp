// When operations ran: what traces are made of.
#include "python/bind.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

// Outlives the stream that Python holds, and does not keep it open.
struct StreamTrace {
    StreamPtr stream;
};

nb::tuple take_trace(const StreamTrace& self) {
    uint64_t lost = 0;
    nb::list found;
    for (const Traced& entry : Scheduler::get().take_trace(*self.stream, lost))
        found.append(nb::make_tuple(entry.sequence, name_of(entry.kind), entry.bytes, entry.start_ns, entry.end_ns));
    return nb::make_tuple(found, lost);
}

}  // namespace

void bind_trace(nb::module_& m) {
    m.def("set_tracing", [](bool on) { Scheduler::get().tracing.store(on, std::memory_order_relaxed); }, "on"_a,
          "Whether streams note when their operations ran.");
    nb::class_<StreamTrace>(m, "StreamTrace", "What a stream notes; also when the stream is closed and gone.")
        .def("__init__", [](StreamTrace* self, const StreamHandle& stream) { new (self) StreamTrace{stream.stream}; },
             "stream"_a)
        .def("take", &take_trace, nb::sig("def take(self) -> tuple[list[tuple[int, str, int, int, int]], int]"),
             "((sequence, kind, bytes, start ns, end ns), ...) since the last call, and how many were lost.");
}
