#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <iterator>

#include "log/log.h"
#include "memory/kernel_call.h"
#include "memory/memory.h"
#include "memory/sharers.h"
#include "net/engine.h"
#include "python/bind.h"
#include "python/bind_collectives.h"
#include "stream/fork.h"
#include "stream/scheduler.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr const char* kWhyNames[] = {
    "unknown_address", "out_of_bounds", "host_fault", "device_fault", "out_of_memory", "system_memory",
    "descriptors", "handles_full", "address_space", "overflow", "pitch_overflow", "interrupted", "forked", "closed", "read_only", "overlap",
    "no_route", "not_peer_memory", "size_mismatch", "node_file", "stream_closed", "cancelled", "wait_timeout", "handle_timeout",
    "callback_failed", "bad_descriptor", "notify_doubled", "notifies_full", "notify_order", "own_callback", "deadlock", "no_access",
    "not_mapped", "imported",
    "imported_read_only", "seam", "in_use", "shared_blocks",
    "handle", "waits_for_lost", "misaligned", "partly_overlapping", "no_whole_elements", "peer_lost",
    "no_block", "lease_ended", "no_progress", "far", "calls_differ"};
static_assert(std::size(kWhyNames) == static_cast<size_t>(Why::calls_differ) + 1);

PyObject* refusal_hook = nullptr;   // strong; the texts are its business

// The facts of a refused handle that its status has.
void add_numbers(nb::dict& facts, Status status, const HandleNumbers& numbers) {
    const auto add = [&facts](const char* name, auto value) { facts[name] = value; };
    switch (status) {
        case Status::version:
            add("maker_version", numbers.versions.exporter);
            add("own_version", numbers.versions.asker);
            break;
        case Status::other_user:
            add("maker_user", numbers.users.exporter);
            add("asker_user", numbers.users.asker);
            break;
        case Status::wrong_kind:
            add("exported_kind", numbers.kinds.exported);
            add("wanted_kind", numbers.kinds.wanted);
            break;
        case Status::too_many:
        case Status::too_many_of_process:
        case Status::too_many_members: add("most", numbers.most); break;
        case Status::exhausted: add("maker_errno", numbers.exporter_error); break;
        case Status::false_size:
            add("claimed_bytes", numbers.bytes.claimed);
            add("bytes_there", numbers.bytes.there);
            break;
        case Status::no_seals: add("seals", numbers.seals); break;
        case Status::false_rights:
            add("claimed_rights", numbers.rights.claimed);
            add("mode", numbers.rights.mode);
            break;
        default: break;
    }
}

// What every refusal has, and the facts of its reason.
nb::dict facts_of(const Refusal& refusal) {
    nb::dict facts;
    const auto add = [&facts](const char* name, auto value) { facts[name] = value; };
    add("role", refusal.role);
    add("address", refusal.address);
    add("size", refusal.size);
    add("errno", refusal.error);
    add("entry", refusal.entry);
    add("device", refusal.device);
    add("other_device", refusal.other_device);
    switch (refusal.why) {
        case Why::unknown_address:
        case Why::out_of_bounds:
            add("start", refusal.within.base);
            add("extent", refusal.within.size);
            add("allocation", refusal.within.allocation);
            break;
        case Why::closed:
        case Why::in_use:
            add("allocation", refusal.within.allocation);
            break;
        case Why::host_fault:
            add("fault_address", refusal.fault_address);
            break;
        case Why::out_of_memory:
            add("free", refusal.room.free);
            add("capacity", refusal.room.capacity);
            break;
        case Why::pitch_overflow:
            add("rows", refusal.pitch.rows);
            add("pitch", refusal.pitch.bytes);
            break;
        case Why::size_mismatch:
            add("other_size", refusal.other_size);
            break;
        case Why::partly_overlapping:
            add("source", refusal.source);
            break;
        case Why::misaligned:
        case Why::no_whole_elements:
            add("width", refusal.width);
            break;
        case Why::handles_full:
        case Why::shared_blocks:
            add("most", refusal.most);
            break;
        case Why::stream_closed:
            add("stream", refusal.stream.id);
            add("made", site_of(refusal.stream.allocation_site));
            add("closed", site_of(refusal.stream.closed_site));
            break;
        case Why::own_callback:
        case Why::deadlock:
            add("stream", refusal.stream.id);
            break;
        case Why::notify_doubled:
        case Why::notifies_full:
        case Why::notify_order:
            add("notify", refusal.notify.id);
            add("other", refusal.notify.other);
            add("most", refusal.notify.most);
            break;
        case Why::wait_timeout:
            add("timeout_ns", refusal.timeout_ns);
            break;
        case Why::bad_descriptor:
            add("field", refusal.list.field);
            add("found", refusal.list.actual);
            add("most", refusal.list.most);
            break;
        case Why::no_progress:
            add("occasion", refusal.occasion);
            break;
        case Why::waits_for_lost:
        case Why::peer_lost:
        case Why::handle_timeout:
            add("pid", refusal.pid);
            break;
        case Why::far:
            add("peer", refusal.far.peer);
            add("refused", refusal.far.why);
            add("memory", refusal.far.memory);
            add("notify", refusal.far.notify);
            break;
        case Why::calls_differ:
            add("number", refusal.calls.number);
            add("rank", refusal.calls.rank);
            add("peer", refusal.calls.peer);
            add("did", called(refusal.calls.own));
            add("peer_did", called(refusal.calls.theirs));
            break;
        case Why::lease_ended:
            add("lease", refusal.lease.id);
            add("end", refusal.lease.end);
            break;
        case Why::handle: {
            const HandleParties& parties = refusal.handle.parties;
            add("status", refusal.handle.status);
            add("maker", parties.exporter);
            add("asker", parties.asker);
            add("started", parties.asker_start);
            add("listed", parties.listed_start);
            add_numbers(facts, static_cast<Status>(refusal.handle.status), refusal.handle.numbers);
            break;
        }
        default:
            break;
    }
    return facts;
}

}  // namespace

void raise_refusal(const Refusal& refusal) {
    if (!refusal_hook) {
        PyErr_SetString(PyExc_RuntimeError, kWhyNames[static_cast<int>(refusal.why)]);
        return;
    }
    try {
        nb::object error = as_exception(refusal);
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    } catch (nb::python_error& error) {
        error.restore();
    }
}

nb::object as_exception(const Refusal& refusal) {
    return nb::borrow(refusal_hook)(kWhyNames[static_cast<int>(refusal.why)], **facts_of(refusal));
}

namespace {

// What a view holds, given back unless the view was made.
struct ViewPin {
    Memory* memory;
    ~ViewPin() {
        if (memory) memory->unpin_view();
    }
};

int get_view(PyObject* self, Py_buffer* view, int flags) {
    Memory& memory = *nb::inst_ptr<Memory>(self);
    view->obj = nullptr;
    try {
        if (Turns::is_on()) [[unlikely]] Turns::quiet_point();
        char* const host = memory.pin_view();
        ViewPin pin{&memory};
        const auto size = static_cast<Py_ssize_t>(memory.size());
        if (PyBuffer_FillInfo(view, self, host, size, memory.may_view_only(), flags) != 0) return -1;
        pin.memory = nullptr;
        log_view_for_observer(memory, true);
        if (log::wanted() && log_alias(memory) && !keeps_buffer()) [[unlikely]] view->internal = self;   // any mark: its end is logged, too
        return 0;
    } catch (const Refusal& refusal) {
        raise_refusal(refusal);
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    }
    return -1;
}

void release_view(PyObject* self, Py_buffer* view) {
    Memory* memory = nb::inst_ptr<Memory>(self);
    if (view->internal) [[unlikely]] log_alias(memory->view_address(), memory->size(), Alias::end);
    log_view_for_observer(*memory, false);
    memory->unpin_view();
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_view)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_view)},
                              {0, nullptr}};

void look_up_each(const uint64_t* addresses, size_t count) {
    Heap& heap = Heap::get();
    for (size_t i = 0; i < count; ++i) heap.unpin(heap.resolve("address", addresses[i], 1));
}

}  // namespace

void bind_memory(nb::module_& m) {
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const Refusal& refusal) {
            raise_refusal(refusal);
        }
    });

    m.def(
        "set_refusal_hook",
        [](nb::callable hook) {
            PyObject* before = refusal_hook;
            refusal_hook = hook.release().ptr();
            Py_XDECREF(before);
        },
        "hook"_a, nb::sig("def set_refusal_hook(hook: collections.abc.Callable[..., BaseException]) -> None"),
        "Set hook(why, **facts) -> exception: role, address, size, errno, entry, device, other_device, and the facts of the reason.");

    m.def(
        "configure",
        [](uint64_t window_bytes, uint64_t cache_bytes, bool poison) {
            Heap::get().configure({window_bytes, cache_bytes, poison});
        },
        "window_bytes"_a, "cache_bytes"_a, "poison"_a,
        "Reserve the address windows (the first call only) and set the cache bound and poisoning.");

    nb::class_<LedgerHandle>(m, "Ledger", "One process's slot in a node's shared account of device memory.")
        .def(
            "__init__",
            [](LedgerHandle* self, int fd, uint64_t devices, uint64_t slots, uint64_t slot) {
                new (self) LedgerHandle{std::make_shared<Ledger>(fd, LedgerLayout{devices, slots}, slot)};
            },
            "fd"_a, "devices"_a, "slots"_a, "slot"_a)
        .def(
            "leave", [](const LedgerHandle& self) { self.ledger->leave(); }, "Write nothing any more: the slot is given back.")
        .def(
            "set_peer",
            [](const LedgerHandle& self, uint64_t from, uint64_t to, bool enabled) { self.ledger->set_peer(from, to, enabled); },
            "origin"_a, "target"_a, "enabled"_a, "Say whether this process enabled the peer.")
        .def(
            "is_peer",
            [](const LedgerHandle& self, uint64_t from, uint64_t to) {
                return self.ledger->enabler(from, to) != LedgerLayout::kNone;
            },
            "origin"_a, "target"_a, "Whether this process enabled the peer, or one that counts.")
        .def(
            "count_all", [](const LedgerHandle& self, bool counts) { self.ledger->count_all(counts); }, "counts"_a,
            "Whether every process counts, or only those that share memory with this one.")
        .def("relied_on", [](const LedgerHandle& self) { return self.ledger->relied_on(); },
             "The owners of the slots because of whose peers copies have passed.")
        .def(
            "enablers", [](const LedgerHandle& self, uint64_t from, uint64_t to) { return self.ledger->enablers(from, to); },
            "origin"_a, "target"_a, "The owners of the other slots that enabled the peer.")
        .def(
            "used", [](const LedgerHandle& self, uint64_t device) { return self.ledger->used(device); }, "device"_a, "Bytes of `device` held by all processes of the node.");

    m.def(
        "ledger_layout",
        [](uint64_t devices, uint64_t slots) {
            const LedgerLayout layout{devices, slots};
            return std::make_tuple(layout.file_size(), layout.entries_at(), layout.holdings_at(), layout.holdings());
        },
        "devices"_a, "slots"_a,
        "Return the bytes of a ledger's file, where its entries and its holdings begin, and how long a slot's holdings are.");

    m.def(
        "add_device",
        [](uint64_t capacity, bool host_access, bool routes_peer_memory_only, const LedgerHandle& ledger,
           uint64_t index) {
            return Heap::get().add_device({capacity, host_access, routes_peer_memory_only}, ledger.ledger, index);
        },
        "capacity"_a, "host_access"_a, "routes_peer_memory_only"_a, "ledger"_a, "index"_a, "Return the number of a new device.");
    m.def(
        "close_device", [](uint32_t number) { Heap::get().close_device(number); }, "number"_a,
        nb::call_guard<GilReleased>(), "Let every allocation of a device die.");
    m.def("free_bytes", [](uint32_t number) { return Heap::get().free_bytes(number); }, "number"_a);
    m.def("next_allocation", [] { return Heap::get().next_id(); },
          "Return a number that no allocation of this process has.");
    m.def("live_allocations", [](uint32_t number) { return Heap::get().live_allocations(number); }, "number"_a);
    m.def(
        "set_route", [](uint32_t from, uint32_t to, bool open) { Heap::get().set_route(from, to, open); }, "origin"_a,
        "target"_a, "open"_a);
    m.def("route_open", [](uint32_t a, uint32_t b) { return Heap::get().route_open(a, b); }, "a"_a, "b"_a);
    m.def(
        "call_kernel",
        [](uint64_t kernel, uint64_t arguments) {
            return call_kernel(reinterpret_cast<Kernel>(kernel), reinterpret_cast<void*>(arguments));
        },
        "kernel"_a, "arguments"_a, nb::call_guard<GilReleased>(),
        "Call the function at an address, which may touch device memory, with another; return what it returns.");
    m.def("trim", [] { return Heap::get().trim(); }, nb::call_guard<GilReleased>(),
          "Give cached blocks back to the system; return their bytes.");
    m.def("interpreter_exits", &interpreter_exits,
          "Let threads that come back for the GIL from now on wait for the end of the process.");
    m.def("check_usable", [] { Heap::get().check_usable(); }, "Refuse in a forked child of a process that had used devices.");
    m.def(
        "see_forks",
        [] {
            Scheduler::get();
            log::see_forks();
            net::Engine::see_forks();
            poll_of_thread();
        },
        "Let all native code see forks from now on, and not from its first use on: who registers for them after this sees a\n"
        "child when native code has made it one.");
    m.def("begin_use", [] { Heap::get().begin_use(); },
          "Say that what the process has now no forked child may share; refuses as check_usable.");
    m.def("end_use", [] { Heap::get().end_use(); }, "Say that the node was left.");
    m.def("begin_anew", &begin_anew,
          "In a forked child: be a process of its own.  False if its parent had used devices, and then nothing can be used.");
    m.def(
        "window_offset",
        [](uint64_t address) -> std::optional<uint64_t> {
            uint64_t offset;
            if (!Heap::get().space().contains(address, offset)) return std::nullopt;
            return offset;
        },
        "address"_a, "Return the place of an address in its window (guard or shadow), None outside of both.");
    m.def(
        "note_sharer", [](int32_t pid, uint64_t start) { note_sharer(owner_word(pid, start)); }, "pid"_a, "start"_a,
        "Note that this process has opened a handle of another one.");
    m.def(
        "reserved_bytes", [] { return 2 * Heap::get().space().window(); }, "Addresses of both windows; 0 before a node.");
    m.def("cached_bytes", [] { return Heap::get().cached_bytes(); });

    nb::class_<Memory>(m, "Memory", nb::type_slots(memory_slots),
                       "An allocation, a part of one, or foreign host memory; exports its bytes to the host.")
        .def(
            "__init__",
            [](Memory* self, uint32_t device, uint64_t size, bool peer) {
                note_site();
                const GilReleased gil;
                new (self) Memory(Memory::allocate(device, size, peer));
            },
            "device"_a, "size"_a, "peer"_a)
        .def(
            "__init__",
            [](Memory* self, const Memory& whole, uint64_t offset, uint64_t size) { new (self) Memory(whole, offset, size); },
            "whole"_a, "offset"_a, "size"_a)
        .def(
            "__init__",
            [](Memory* self, uint64_t address, uint64_t size, bool read_only, bool host_view) {
                new (self) Memory(address, size, read_only, host_view);
            },
            "address"_a, "size"_a, "read_only"_a, "host_view"_a)
        .def(
            "__init__",
            [](Memory* self, const ReservationHandle& reservation, uint64_t offset, uint64_t size) {
                new (self) Memory(reservation.reservation, offset, size, false);
            },
            "place"_a, "offset"_a, "size"_a)
        .def_prop_ro("address", &Memory::address, "The address; raises when the memory is closed.")
        .def_prop_ro("writable_address", &Memory::writable_address, "The address; raises when it may not be written.")
        .def_prop_ro("last_address", &Memory::last_address, "The address it has or had.")
        .def_prop_ro("size", &Memory::size, "Bytes.")
        .def_prop_ro("id", &Memory::id, "The allocation's number, unique in the process; 0 for foreign memory.")
        .def_prop_ro("is_live", &Memory::is_live)
        .def_prop_ro("is_read_only", &Memory::is_read_only)
        .def_prop_ro("is_peer", &Memory::is_peer, "Whether it was allocated for peer access.")
        .def_prop_ro(
            "homes",
            [](const Memory& self) {
                const Operand held("address", self.last_address(), self.size(), self.pin());
                std::set<std::pair<uint32_t, bool>> owners;
                Heap::get().each_extent(held.range(), [&](const Extent* each) { owners.emplace(each->device, each->peer); });
                return owners;
            },
            "(device, whether for peer access) of each block that its bytes lie in.")
        .def(
            "close",
            [](Memory& self) {
                note_site();
                const GilReleased gil;
                self.close();
            },
            "End this object; an owner's memory goes back when the last use of it ends.");

    m.def(
        "locate",
        [](uint64_t address) -> std::optional<std::tuple<uint32_t, uint64_t, uint64_t, uint64_t>> {
            Heap& heap = Heap::get();
            const Range range = heap.resolve("address", address, 1);
            if (!range.extent) return std::nullopt;
            auto location = std::make_tuple(range.device, heap.address_of(range.extent), range.extent->size,
                                         range.extent->id.load(std::memory_order_relaxed));
            heap.unpin(range);
            return location;
        },
        "address"_a, "Return (device, base, size, id), or None for pageable host memory.");
    m.attr("look_up_each") = nb::capsule(reinterpret_cast<const void*>(look_up_each), "look_up_each");
    m.def(
        "nearest",
        [](uint64_t address) -> std::optional<std::tuple<uint32_t, uint64_t, uint64_t, uint64_t>> {
            const Neighbour neighbour = Heap::get().nearest(address);
            if (!neighbour.exists) return std::nullopt;
            return std::make_tuple(neighbour.device, neighbour.address, neighbour.size, neighbour.id);
        },
        "address"_a, "Return (device, address, size, id) of the live allocation nearest to a window address.");
}
