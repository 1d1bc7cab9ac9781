// The memory of vendors' pools, as Python holds it.
#include "python/bind_pools.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

static void bind_pool_memory(nb::module_& m) {
    nb::class_<PoolMemoryHandle>(m, "PoolMemory", "The memory that a pool has of its location, by allocation: in use, or freed and kept.")
        .def(
            "__init__",
            [](PoolMemoryHandle* self, const PoolsHandle& pools, uint32_t device) {
                new (self) PoolMemoryHandle{std::make_shared<PoolMemory>(pools.pools, device)};
            },
            "pools"_a, "device"_a, "`device`: its number in native code, 0 for one of another back-end.")
        .def("setting", [](const PoolMemoryHandle& self, uint32_t number) { return self.memory->setting(number); }, "number"_a)
        .def("set", [](const PoolMemoryHandle& self, uint32_t number, uint64_t value) { self.memory->set(number, value); }, "number"_a, "value"_a)
        .def_prop_ro("used", [](const PoolMemoryHandle& self) { return self.memory->used(); }, "Bytes in use.")
        .def_prop_ro("kept", [](const PoolMemoryHandle& self) { return self.memory->kept(); }, "Bytes that were freed and are kept.")
        .def_prop_ro("most_used", [](const PoolMemoryHandle& self) { return self.memory->most_used(); })
        .def_prop_ro("most_reserved", [](const PoolMemoryHandle& self) { return self.memory->most_reserved(); })
        .def("reset_most_used", [](const PoolMemoryHandle& self) { self.memory->reset_most_used(); })
        .def("reset_most_reserved", [](const PoolMemoryHandle& self) { self.memory->reset_most_reserved(); })
        .def(
            "add", [](const PoolMemoryHandle& self, uint64_t allocation, uint64_t address, uint64_t size) { self.memory->add(allocation, address, size); },
            "allocation"_a, "address"_a, "size"_a, "Enter memory that the location gave, in use.")
        .def("remove", [](const PoolMemoryHandle& self, uint64_t allocation) { return self.memory->remove(allocation); }, "allocation"_a,
             "Drop memory that the location gets back; False if another thread was quicker.")
        .def("end_quick_frees", [](const PoolMemoryHandle& self, uint64_t allocation) { self.memory->end_quick_frees(allocation); }, "allocation"_a,
             "Let no call of C without Python free it.")
        .def("end_quick_calls", [](const PoolMemoryHandle& self) { self.memory->end_quick_calls(); },
             "Let no call of C without Python use the pool any more.")
        .def("is_in_use", [](const PoolMemoryHandle& self, uint64_t allocation) { return self.memory->is_in_use(allocation); }, "allocation"_a)
        .def("begin_free", [](const PoolMemoryHandle& self, uint64_t allocation) { return self.memory->begin_free(allocation); }, "allocation"_a,
             "End the use of memory; False if it was not in use.")
        .def(
            "keep",
            [](const PoolMemoryHandle& self, uint64_t allocation, uint64_t stream, const EventHandle* event) {
                self.memory->keep(allocation, stream, event ? as_shared(event->event->mark()) : nullptr);
            },
            "allocation"_a, "stream"_a, "event"_a.none(),
            "Keep memory whose use has ended; the event is over when the free is, None: only the caller knows.")
        .def("use", [](const PoolMemoryHandle& self, uint64_t allocation) { return self.memory->use(allocation); }, "allocation"_a,
             "Use kept memory again; False if another thread was quicker.")
        .def("fitting", [](const PoolMemoryHandle& self, uint64_t size, uint64_t stream) { return self.memory->fitting(size, stream); }, "size"_a,
             "stream"_a, "Return kept memory that fits, smallest first, and whether the stream is behind its free.")
        .def("kept_allocations", [](const PoolMemoryHandle& self) { return self.memory->kept_allocations(); }, "Return what is kept, smallest first.")
        .def(
            "freed",
            [](const PoolMemoryHandle& self, uint64_t allocation) -> std::optional<std::pair<uint64_t, Held<Mark>*>> {
                const auto freed = self.memory->freed(allocation);
                if (!freed) return std::nullopt;
                if (!freed->mark) return std::pair<uint64_t, Held<Mark>*>(freed->stream, nullptr);
                freed->mark->hold();
                return std::pair(freed->stream, new Held<Mark>{freed->mark.get()});
            },
            nb::rv_policy::take_ownership, "allocation"_a, nb::sig("def freed(self, allocation: int) -> tuple[int, Mark | None] | None"),
            "Return the stream of the free, by number, and its mark, None if it was passed none; None if the memory is not kept.");
}

void bind_pools(nb::module_& m) {
    nb::class_<PoolsHandle>(m, "Pools", "The memory of all pools of a vendor's program.")
        .def(nb::init<>())
        .def_prop_ro("keep_memory", [](const PoolsHandle& self) { return self.pools->keep_memory(); }, "Whether any memory is kept.")
        .def("take_changes", [](const PoolsHandle& self) { return self.pools->take_changes(); },
             "Return what calls of C without Python have allocated or freed since the last call: the allocation, whether it is in use, and whether one allocated it.");
    nb::class_<FreedBeforeHandle>(m, "FreedBefore", "What was freed to pools before the last record of an event.")
        .def(nb::init<>())
        .def("record", [](const FreedBeforeHandle& self, const PoolsHandle& pools, uint64_t stream) { pools.pools->record(*self.before, stream); },
             "pools"_a, "stream"_a, "A stream records the event.")
        .def("wait", [](const FreedBeforeHandle& self, const PoolsHandle& pools, uint64_t stream) { pools.pools->wait(*self.before, stream); },
             "pools"_a, "stream"_a, "A stream waits for the record: it is behind those frees, where pools follow events.");
    bind_pool_memory(m);
}
