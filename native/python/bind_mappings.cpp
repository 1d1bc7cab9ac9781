// Physical blocks and the addresses they are mapped into.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "memory/memory.h"
#include "python/bind.h"
#include "share/sharing.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

std::vector<Access> accesses(const std::vector<std::pair<uint32_t, unsigned>>& named) {
    std::vector<Access> accesses;
    for (const auto& [device, rights] : named) accesses.push_back({device, rights});
    return accesses;
}

}  // namespace

BlockHandle::~BlockHandle() { close(); }

void BlockHandle::close() {
    Block* const mine = std::exchange(block_, nullptr);
    if (!mine || Heap::get().is_forked()) return;
    const GilReleased gil;
    drop(mine);
}

Block& BlockHandle::get() const {
    if (!block_) throw Refusal{.why = Why::closed};
    return *block_;
}

void bind_mappings(nb::module_& m) {
    m.attr("GRANULE") = kGranule;
    m.attr("ALL_DEVICES") = Access::kAll;

    nb::class_<BlockHandle>(m, "Block", "A hold on physical memory.")
        .def(
            "__init__",
            [](BlockHandle* self, uint32_t device, uint64_t size, bool peer, const std::string& name) {
                note_site();
                const GilReleased gil;
                Block* const block = Heap::get().create_physical(device, size, peer, name);
                new (self) BlockHandle(block);
                if (!log::wanted()) return;
                log::Spans spans;
                spans.add(block->id, 0, block->size, true);
                log::write({.kind = log::Kind::allocated, .a = Heap::get().next_id(), .b = uint64_t{1} + device, .spans = &spans});
            },
            "device"_a, "size"_a, "peer"_a, "name"_a, "Its file is named `name` and its id.")
        .def_prop_ro("size", [](const BlockHandle& self) { return self.get().size; })
        .def_prop_ro("id", [](const BlockHandle& self) { return self.get().id; }, "Unique in the node.")
        .def_prop_ro("device", [](const BlockHandle& self) { return self.get().device; }, "Native code's number of its device.")
        .def_prop_ro("is_read_only", [](const BlockHandle& self) { return self.get().read_only; })
        .def_prop_ro("is_imported", [](const BlockHandle& self) { return self.get().origin != nullptr; })
        .def_prop_ro("is_closed", &BlockHandle::is_closed)
        .def(
            "export_file",
            [](const BlockHandle& self, bool read_only) {
                const BlockUse use(self);
                const GilReleased gil;
                return export_file(use.block, read_only);
            },
            "read_only"_a, "Return a new descriptor of its file, the caller's to close.")
        .def("close", &BlockHandle::close, "Let go; idempotent.");

    nb::class_<ReservationHandle>(m, "Reservation", "Reserved addresses.")
        .def(
            "__init__",
            [](ReservationHandle* self, uint32_t device, uint64_t size, uint64_t alignment, uint64_t wanted) {
                new (self) ReservationHandle{Heap::get().reserve(size, alignment, device, wanted)};
            },
            "device"_a, "size"_a, "alignment"_a, "wanted"_a)
        .def_prop_ro("address", [](const ReservationHandle& self) { return Heap::get().address_of(*self.reservation); })
        .def_prop_ro("size", [](const ReservationHandle& self) { return self.reservation->span.load(std::memory_order_acquire); })
        .def_prop_ro("id", [](const ReservationHandle& self) { return self.reservation->id; }, "Unique in the process.")
        .def_prop_ro("is_closed", [](const ReservationHandle& self) { return self.reservation->closed.load(std::memory_order_acquire); })
        .def(
            "grow", [](ReservationHandle& self, uint64_t size) { return Heap::get().grow(*self.reservation, size); }, "size"_a,
            "Reserve more behind what there is; False when that is in use, or not there.")
        .def_prop_ro(
            "most", [](const ReservationHandle& self) { return Heap::get().space().window() - self.reservation->offset; },
            "Bytes from its start to the end of the windows.")
        .def(
            "map",
            [](ReservationHandle& self, uint64_t at, const BlockHandle& block, unsigned others,
               const std::vector<std::pair<uint32_t, unsigned>>& named, uint64_t limit) {
                const BlockUse use(block);
                const GilReleased gil;
                Heap::get().map(*self.reservation, at, &use.block, others, accesses(named), limit);
            },
            "at"_a, "block"_a, "others"_a, "named"_a, "limit"_a,
            "Rights: 1 read, 2 write; those of devices not named are `others`.  Of the block its first `limit` bytes are mapped; those behind are out of bounds.")
        .def(
            "map_for",
            [](ReservationHandle& self, uint64_t at, const BlockHandle& block, uint32_t user, uint64_t limit) {
                const BlockUse use(block);
                const unsigned rights = use.block.read_only ? Mapping::kRead : Mapping::kRead | Mapping::kWrite;
                const GilReleased gil;
                Heap::get().map(*self.reservation, at, &use.block, 0,
                                {{use.block.device, rights}, {user, rights}, {self.reservation->device, rights}}, limit);
            },
            "at"_a, "block"_a, "user"_a, "limit"_a, "The same, with all rights that the block has for three devices: its own, `user` and the range's.")
        .def(
            "unmap", [](ReservationHandle& self, uint64_t at) {
                note_site();
                const GilReleased gil;
                Heap::get().unmap(*self.reservation, at);
            },
            "at"_a, "End the mapping that starts at `at`; it stays until its last use ends.")
        .def(
            "set_access",
            [](ReservationHandle& self, uint64_t at, uint64_t size, uint32_t device, unsigned rights) {
                Heap::get().set_access(*self.reservation, at, size, {device, rights});
            },
            "at"_a, "size"_a, "device"_a, "rights"_a)
        .def(
            "rights", [](ReservationHandle& self, uint64_t at, uint32_t device) { return Heap::get().rights(*self.reservation, at, device); },
            "at"_a, "device"_a)
        .def("close", [](ReservationHandle& self) { self.close(); }, nb::call_guard<GilReleased>(),
             "Unmap everything and give the addresses back after the last use; idempotent.");
}
