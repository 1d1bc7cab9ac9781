// Handles: what this process offers to others, and what it opens of theirs.
#include <cerrno>
#include <unistd.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/bind_operands.h"
#include "python/bind_signals.h"
#include "memory/sharers.h"
#include "share/handle_text.h"
#include "share/process.h"
#include "share/sharing.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

using Allowed = std::optional<std::vector<int32_t>>;
using HandleClaims = std::tuple<nb::bytes, uint8_t, uint8_t, uint64_t, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t, uint32_t, uint32_t>;

// An offer that was opened and not yet made something of this process.
struct OfferHandle {
    Offer offer;
    Opening opening;

    OfferHandle(Offer opened, Opening opening) : offer(opened), opening(std::move(opening)) {}
    ~OfferHandle() { close(); }
    void close() {
        const int fd = std::exchange(offer.fd, -1);
        if (fd < 0) return;
        ::close(fd);
        opening.end();
    }
    OfferHandle(const OfferHandle&) = delete;
};

std::shared_ptr<SharedSignal> open_page(const OfferHandle& offered, const LedgerHandle& ledger, uint32_t bank) {
    try {
        return open_signal(offered.offer, ledger, bank);
    } catch (const Refusal& refusal) {
        if (refusal.error != EBADF) throw;   // the memory has another size than a signal's
        throw refuse_handle(Status::bad_answer, {.exporter = offered.opening.exporter()->pid()});
    }
}

}  // namespace

void bind_sharing(nb::module_& m) {
    pause_hook.store([] {
        if (!PyGILState_Check()) return std::this_thread::yield();
        const GilReleased gil;
        std::this_thread::yield();
    });
    m.def(
        "start_time",
        [](int32_t pid) { return known_start(start_time(pid)); },
        "pid"_a, "The kernel's start time of a process in clock ticks, 0 if there is none.");
    m.def(
        "serve",
        [](int directory, const std::string& name, uint32_t slot, uint64_t node) {
            const GilReleased gil;
            Broker::get().open(directory, name, slot, node);
        },
        "directory"_a, "name"_a, "slot"_a, "node"_a, "Serve handles on a socket of this name, from a thread of its own; idempotent.");
    m.def(
        "stop_serving",
        [] {
            forget_connections();
            Scheduler::get().use_bell(nullptr);
            Broker::get().close();
        }, nb::call_guard<GilReleased>(), "Nobody opens anything any more; idempotent.");
    m.def("forget_lost", &forget_lost_connections, nb::call_guard<GilReleased>(),
          "Let go of connections to processes that have ended.");
    m.def(
        "offer",
        [](const BlockHandle& block, uint16_t kind, uint16_t rights, uint32_t device, uint64_t offset, uint64_t length, const Allowed& allowed) {
            const BlockUse use(block);
            const GilReleased gil;
            const Grant grant{.kind = static_cast<Kind>(kind), .rights = rights, .device = device, .offset = offset, .length = length};
            const ExportKey key = offer_block(&use.block, grant, !allowed);
            if (allowed) allow_all(key, *allowed);
            return std::make_pair(key.index, key.nonce);
        },
        "block"_a, "kind"_a, "rights"_a, "device"_a, "offset"_a, "length"_a, "allowed"_a.none(),
        "Let processes open it: those with the pids `allowed`, or all of the user.  Return (index, nonce).");
    m.attr("HANDLE_MAGIC") = nb::bytes(HandleText{}.magic, sizeof HandleText{}.magic);
    m.attr("HANDLE_VERSION") = HandleText::kVersion;
    m.def(
        "handle_text",
        [](uint8_t kind, uint64_t node, uint32_t slot, uint32_t index, uint64_t nonce, uint64_t size, uint32_t pid, uint32_t start) {
            const HandleText handle{.kind = kind, .node = node, .slot_and_index = uint64_t{index} << HandleText::kSlotBits | slot,
                                    .nonce = nonce, .size = size, .pid = pid, .start = start};
            const std::string text = handle.encode();
            return nb::bytes(text.data(), text.size());
        },
        "kind"_a, "node"_a, "slot"_a, "index"_a, "nonce"_a, "size"_a, "pid"_a, "start"_a, "Return the text form of a handle.");
    m.def(
        "handle_claims",
        [](const nb::bytes& text) -> std::optional<HandleClaims> {
            const std::optional<HandleText> handle = HandleText::decode({text.c_str(), text.size()});
            if (!handle) return std::nullopt;
            return HandleClaims{nb::bytes(handle->magic, sizeof handle->magic), handle->version, handle->kind, handle->node,
                                handle->slot_and_index, handle->nonce, handle->size, handle->pid, handle->start, handle->checksum,
                                handle->computed_checksum()};
        },
        "text"_a,
        "Return (magic, version, kind, node, slot and index, nonce, size, pid, start, checksum, right checksum) of a text, whatever it\n"
        "claims; None if it is not 64 characters of the alphabet.");
    m.def(
        "open_early",
        [](const nb::bytes& text, uint64_t node, uint16_t kind) -> OfferHandle* {
            const std::optional<HandleText> handle = HandleText::decode({text.c_str(), text.size()});
            if (!handle || !handle->is_whole() || handle->node != node) return nullptr;
            auto exporter = Exporter::known(handle->slot(), node, static_cast<int32_t>(handle->pid), handle->start);
            if (!exporter) return nullptr;
            std::optional<Offer> offer;
            {
                const GilReleased gil;   // the exporter chose the file, and the opening of some files takes long
                offer = exporter->open_early(handle->index(), handle->nonce, static_cast<Kind>(kind));
            }
            if (!offer) return nullptr;
            note_sharer(owner_word(exporter->pid(), exporter->start()));
            return new OfferHandle(*offer, Opening(std::move(exporter), handle->index(), *offer));
        },
        "text"_a, "node"_a, "kind"_a, nb::rv_policy::take_ownership, nb::sig("def open_early(text: bytes, node: int, kind: int) -> Offer | None"),
        "Open what a known process granted before it was asked; None: ask it.");
    m.def(
        "allow",
        [](uint32_t index, uint64_t nonce, int32_t pid, std::optional<uint64_t> start) {
            return Broker::get().allow(index, nonce, pid, start ? *start : known_start(Broker::get().start_of(pid)));
        },
        "index"_a, "nonce"_a, "pid"_a, "start"_a = nb::none(),
        "Let a process open it, by default the one that has this pid now; False when it is over.");
    m.def(
        "disallow", [](uint32_t index, uint64_t nonce, int32_t pid) { return Broker::get().disallow(index, nonce, pid); }, "index"_a,
        "nonce"_a, "pid"_a);
    m.def(
        "allowed", [](uint32_t index, uint64_t nonce) { return Broker::get().allowed(index, nonce); }, "index"_a, "nonce"_a,
        "Return (pid, start time) of each that may open it.");
    m.def(
        "refuse_own",
        [](uint32_t index, uint64_t nonce, unsigned nonce_bits) {
            throw refuse_handle(Broker::get().refusal_of(index, nonce, nonce_bits), {.exporter = getpid()});
        },
        "index"_a, "nonce"_a, "nonce_bits"_a, "Raise why this process does not open a handle that it made itself.");
    m.def(
        "is_offered",
        [](uint32_t index, uint64_t nonce) { return Broker::get().refusal_of(index, nonce, 64) == Status::own_process; },
        "index"_a, "nonce"_a, "Whether others can still open it.");
    m.def(
        "withdraw", [](uint32_t index, uint64_t nonce) { Broker::get().withdraw(index, nonce); }, "index"_a, "nonce"_a,
        nb::call_guard<GilReleased>());
    m.def("importers", [](uint32_t index, uint64_t nonce) { return Broker::get().importers(index, nonce); }, "index"_a, "nonce"_a);

    nb::class_<OfferHandle>(m, "Offer", "What another process gave; closed with this object unless it was adopted.")
        .def_prop_ro("device", [](const OfferHandle& self) { return self.offer.grant.device; }, "Ordinal in the node.")
        .def_prop_ro("size", [](const OfferHandle& self) { return self.offer.grant.size; }, "Bytes of the block.")
        .def_prop_ro("part", [](const OfferHandle& self) { return std::make_pair(self.offer.grant.offset, self.offer.grant.length); },
                     "(offset, length) of what is meant.")
        .def(
            "signal",
            [](OfferHandle& self, const LedgerHandle& ledger, uint32_t bank) {
                if (self.offer.fd < 0) throw Refusal{.why = Why::closed};
                auto signal = open_page(self, ledger, bank);
                ::close(std::exchange(self.offer.fd, -1));
                return new SignalHandle{std::move(signal), true, std::make_shared<Opening>(std::move(self.opening))};
            },
            "ledger"_a, "bank"_a = 0, nb::rv_policy::take_ownership,
            "What it shares of a notify, an event or, of `bank` lines, a bank; the offer is used up.")
        .def_prop_ro("notify_kind", [](const OfferHandle& self) { return self.offer.grant.notify_kind; })
        .def_prop_ro("count", [](const OfferHandle& self) { return self.offer.grant.count; },
                     "How many notifies, ranks or leases the lines of a bank are for.")
        .def_static(
            "of_file",
            [](int fd, uint32_t device, uint64_t block, uint64_t size, bool read_only, bool peer) {
                const auto rights = static_cast<uint16_t>(kMayRead | (read_only ? 0 : kMayWrite) | (peer ? kForPeers : 0));
                const Grant grant{.rights = rights, .device = device, .block = block, .entry = LedgerLayout::kNone, .size = size,
                                  .length = size};
                return new OfferHandle({.grant = grant, .fd = fd}, Opening(nullptr, 0, {}));
            },
            "fd"_a, "device"_a, "block"_a, "size"_a, "read_only"_a, "peer"_a, nb::rv_policy::take_ownership,
            "One of a descriptor that was checked, which is taken over.")
        .def("close", &OfferHandle::close, "Let go of it; idempotent.")
        .def(
            "adopt",
            [](OfferHandle& self, uint32_t device, const LedgerHandle& ledger) {
                if (self.offer.fd < 0) throw Refusal{.why = Why::closed};
                const GilReleased gil;
                return new BlockHandle(adopt_offer(self.offer, std::move(self.opening), device, ledger.ledger));
            },
            "device"_a, "ledger"_a, nb::rv_policy::take_ownership, "Make it a block of this process; the offer is used up.");
    m.def(
        "open_handle",
        [](int directory, const std::string& name, uint32_t slot, uint64_t node, int32_t pid, uint64_t start, uint32_t index, uint64_t nonce,
           unsigned nonce_bits, uint16_t kind, double timeout) {
            return interruptible([&](Poll poll) {
                const Deadline deadline = Deadline::in(timeout);
                auto exporter = Exporter::connect(directory, name, slot, node, pid, start, deadline, poll);
                keep_connection(exporter);
                const Offer offer = exporter->open(index, nonce, nonce_bits, static_cast<Kind>(kind), deadline, poll);
                return new OfferHandle(offer, Opening(std::move(exporter), index, offer));
            });
        },
        "directory"_a, "name"_a, "slot"_a, "node"_a, "pid"_a, "start"_a, "index"_a, "nonce"_a, "nonce_bits"_a, "kind"_a, "timeout"_a,
        nb::rv_policy::take_ownership, "Ask process `pid` for what a handle stands for; waits at most `timeout` seconds.");

    m.def(
        "share",
        [](const Memory& memory) {
            Heap& heap = Heap::get();
            const Operand held("address", memory.last_address(), memory.size(), memory.pin());
            const Range& range = held.range();
            if (!range.extent) throw Refusal{.why = Why::no_block, .address = held.address, .size = held.size};
            if (range.end_offset > range.extent->offset + range.extent->size)
                throw Refusal{.why = Why::seam, .address = held.address, .size = held.size, .device = range.device};
            uint64_t within;
            Block* shared;
            {
                const GilReleased gil;   // it may wait for a copy of another thread, which ends with the GIL
                shared = heap.share(range.extent, within);
            }
            auto block = std::make_unique<BlockHandle>(shared);
            return std::make_pair(block.release(), within + held.address - heap.address_of(range.extent));
        },
        "memory"_a, "Return (block, offset): where its bytes lie, in memory that other processes may have.");
}
