// What two processes do with each other without a group: messages in rings, and copies by the system.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "python/bind.h"
#include "share/message_rings.h"
#include "share/process_copies.h"
#include "share/process_memory.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr uint64_t kGiveGilFrom = uint64_t{64} << 10;   // bytes whose copy lasts longer than taking the GIL again

// The GIL orders its calls.
struct RingsHandle {
    std::unique_ptr<MessageRings> rings;
    MessageRings& get() const {
        if (!rings) throw nb::value_error("the rings are closed");
        return *rings;
    }
};

std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::object taken_of(MessageRings& rings) {
    if (!rings.has_any()) return nb::none();
    const MessageRings::Taken taken = rings.take();
    nb::list messages;
    for (const auto& each : taken.messages) {
        const nb::object name = nb::steal(PyUnicode_DecodeUTF8(each.name.data(), static_cast<Py_ssize_t>(each.name.size()), "replace"));
        if (!name) throw nb::python_error();
        messages.append(nb::make_tuple(name, nb::bytes(each.text.data(), each.text.size()), each.ring, each.position));
    }
    return nb::make_tuple(messages, taken.nonsense);
}

}  // namespace

void bind_processes(nb::module_& m) {
    nb::class_<RingsHandle>(m, "MessageRings", "Rings in shared memory: each has one process that sends, and all have one that reads.")
        .def("__init__",
             [](RingsHandle* self, int fd, uint64_t offset) {
                 try {
                     new (self) RingsHandle{std::make_unique<MessageRings>(fd, offset)};
                 } catch (const std::system_error& error) {
                     errno = error.code().value();
                     PyErr_SetFromErrno(PyExc_OSError);
                     throw nb::python_error();
                 }
             },
             "fd"_a, "offset"_a, "Map the BYTES of a file that begin at a page.")
        .def("close", [](RingsHandle& self) { self.rings.reset(); }, "Unmap them; idempotent.")
        .def("hold", [](RingsHandle& self, uint32_t ring) {
                if (ring >= MessageRings::kRings) throw nb::index_error("no ring has this number");
                self.get().hold(ring);
            }, "ring"_a, "Send by this ring from now on; no other process holds it.")
        .def("put",
             [](RingsHandle& self, const nb::bytes& name, const nb::bytes& text, bool more) {
                 if (name.size() > UINT16_MAX || text.size() > MessageRings::kMostAtOnce) throw nb::value_error("the piece is too long");
                 return self.get().put(view_of(name), view_of(text), more);
             },
             "name"_a, "text"_a, "more"_a, "Send a piece of a message; False: there is not room enough now.")
        .def_prop_ro("place", [](const RingsHandle& self) { return self.get().position(); }, "Where the next piece will stand in its ring.")
        .def("take", [](RingsHandle& self) { return taken_of(self.get()); },
             nb::sig("def take(self) -> tuple[list[tuple[str, bytes, int, int]], int] | None"),
             "Return the messages that have come, each with the sender's name, its ring and the place of its last piece, and how many bytes "
             "were none; None if nothing has come.")
        .def_ro_static("RINGS", &MessageRings::kRings)
        .def_ro_static("BYTES", &MessageRings::kBytes)
        .def_ro_static("MOST_AT_ONCE", &MessageRings::kMostAtOnce);

    nb::class_<ProcessCopies>(m, "ProcessCopies", "Copies between this process's memory and another's, by the system.")
        .def("__init__",
             [](ProcessCopies* self, pid_t pid, bool writes, const std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>& pieces) {
                 std::vector<ProcessCopies::Piece> parts;
                 for (const auto& [local, remote, size] : pieces) parts.push_back({local, remote, size});
                 new (self) ProcessCopies(pid, writes, parts);
             },
             "pid"_a, "writes"_a, "pieces"_a, "``pieces``: this process's address, the other's, and bytes.")
        .def("__call__",
             [](const ProcessCopies& self) {
                 if (self.size() < kGiveGilFrom) return self.run();
                 const nb::gil_scoped_release release;
                 return self.run();
             },
             "Copy; return 0, or the number of the system's error.")
        .def_prop_ro("size", &ProcessCopies::size);
    nb::class_<ProcessMemory>(m, "ProcessMemory", "Which addresses of a process, this one or another, are memory.")
        .def(nb::init<pid_t>(), "pid"_a)
        .def("check",
             [](const ProcessMemory& self, const std::vector<std::tuple<uint64_t, uint64_t>>& ranges, bool writes) {
                 std::vector<ProcessMemory::Range> parts;
                 uint64_t bytes = 0;
                 for (const auto& [address, size] : ranges) {
                     parts.push_back({address, size});
                     bytes += std::min(size, kGiveGilFrom);
                 }
                 if (bytes < kGiveGilFrom) return self.check(std::move(parts), writes);
                 const nb::gil_scoped_release release;
                 return self.check(std::move(parts), writes);
             },
             "ranges"_a, "writes"_a,
             "Return 0 if all bytes of ``ranges`` (address, bytes) may be read or, with ``writes``, written; else the number of the system's error.");
}
