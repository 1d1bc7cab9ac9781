// Channels to other machines.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "memory/fault_guard.h"
#include "python/bind_far.h"
#include "python/bind_operands.h"
#include "python/bind_signals.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;
using net::FarOp;
using net::FarOpPtr;

namespace {

constexpr uint64_t kMostQueued = 16'384;   // operations of a stream behind one on another machine's memory

// What a stream holds of an operation.
struct OnStream final : FarOperation {
    FarOpPtr op;
    explicit OnStream(FarOpPtr op) : op(std::move(op)) {}
    bool post() override { return op->channel->post(*op); }
    bool is_over() const override { return op->is_over(); }
    const Refusal* failure() const override { return op->failure() ? &*op->failure() : nullptr; }
    Stepwise::Touched written() const override {
        return op->verb == FarOp::Verb::read ? Stepwise::Touched{op->local, op->size} : Stepwise::Touched{};
    }
    void describe(log::Event& event, log::Spans& spans) override { op->describe(event, spans); }
    void log_as(uint64_t stream, uint64_t sequence) override {
        op->logged_stream = stream;
        op->logged_sequence = sequence;
    }
};

FarOpPtr begun(const FarHandle& end, FarOp::Verb verb, uint32_t memory, uint64_t at, uint64_t size, uint32_t notify = 0) {
    Heap::get().check_usable();
    if (net::FarNode::get().has_returned()) release_far();
    auto op = std::make_shared<FarOp>(end.channel, verb);
    op->memory = memory;
    op->at = at;
    op->size = size;
    op->notify = notify;
    return op;
}

// This process's bytes, held until the operation is over.
void take_over(FarOp& op, Operand& operand, nb::handle object) {
    Heap::get().check_access(op.verb == FarOp::Verb::read ? operand.range() : Range{},
                             op.verb == FarOp::Verb::read ? Range{} : operand.range(), op.stream ? op.stream->device : kHost);
    op.local = operand.host();
    op.pins.push_back(operand.range());
    operand.hand_over();
    if (nb::inst_ptr<Memory>(object)->is_foreign()) op.keep = object.inc_ref().ptr();
}

// What is done without a stream.
void log_far(FarOp& op) noexcept {
    try {
        note_site();
        log::Spans spans;
        static std::atomic<uint64_t> next{1};   // a record has a number of its own: the peer's log tells which one it was
        const uint64_t number = op.verb == FarOp::Verb::notify ? next.fetch_add(1, std::memory_order_relaxed) : 0;
        log::Event event{.kind = log::Kind::access, .flags = log::context.flags, .sequence = number, .a = log::context.channel, .spans = &spans};
        op.describe(event, spans);
        if (event.kind != log::Kind::access) event.flags = 0;
        log::write(event);
    } catch (const std::exception&) {
        log::drop();
    }
}

// On a stream: it is queued.  Without: it is over on return, or raises.
void carry_out_one(const FarOpPtr& op, const StreamHandle* stream) {
    if (stream) {
        const StreamPtr& to = stream->stream;
        if (to->submitted.load(std::memory_order_relaxed) - to->completed.load(std::memory_order_relaxed) > kMostQueued) [[unlikely]]
            interruptible([&](Poll poll) {
                if (Scheduler::get().make_room(*to, kMostQueued, poll) == Outcome::interrupted) throw Refusal{.why = Why::interrupted};
            });
        op->stream = to;
        op->goes_on = !to->stops;
        auto extra = std::make_unique<OnStream>(op);
        Op queued{.kind = OpKind::far, .extra = extra.get()};
        submit(*stream, queued, nb::handle());
        extra.release();
        net::Engine::get()->kick();
        return;
    }
    const bool is_logged = log::wanted(), records = op->verb == FarOp::Verb::notify;
    if (is_logged && records) [[unlikely]] log_far(*op);   // before the peer can wait for it
    op->channel->post(*op);   // before the GIL is let go, which would make it later
    net::Engine::get()->kick();
    interruptible([&](Poll poll) {
        if (net::FarNode::get().wait(*op, poll) == Outcome::interrupted) throw Refusal{.why = Why::interrupted};
    });
    if (op->failure()) throw *op->failure();
    if (is_logged && !records) [[unlikely]] log_far(*op);
}

void carry_out(const FarOpPtr& op, const StreamHandle* stream) {
    if (op->notify == 0 || op->verb == FarOp::Verb::notify || !log::wanted()) [[likely]] return carry_out_one(op, stream);
    // The log has an operation and its record as two.
    const auto record = std::make_shared<FarOp>(op->channel, FarOp::Verb::notify);
    record->notify = std::exchange(op->notify, 0);
    carry_out_one(op, stream);
    carry_out_one(record, stream);
}

struct Row {
    uint64_t dst_at, src_at, size;
};

void move_blocks(const FarHandle& end, const StreamHandle* stream, bool writes, uint32_t memory, uint64_t at, uint64_t limit, nb::handle object,
                 nb::handle table, uint32_t notify) {
    const auto& own = *nb::inst_ptr<Memory>(object);
    Py_buffer view{};
    if (PyObject_GetBuffer(table.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    struct Released {
        Py_buffer& view;
        ~Released() { PyBuffer_Release(&view); }
    } const released{view};
    const uint64_t rows = static_cast<uint64_t>(view.len) / sizeof(Row);
    const FarOpPtr op = begun(end, writes ? FarOp::Verb::write : FarOp::Verb::read, memory, at, 0, notify);
    Operand mine = writes ? readable(own) : writable(own);
    op->blocks.reserve(rows);
    const auto check = [](const char* role, uint64_t address, uint64_t all, uint64_t first, uint64_t size, uint64_t entry) {
        if (first > all || size > all - first)
            throw Refusal{.why = Why::out_of_bounds, .role = role, .address = address + first, .size = size, .within = {address, all, 0},
                          .entry = entry + 1};
    };
    for (uint64_t i = 0; i < rows; ++i) {
        Row row;
        memcpy(&row, static_cast<const char*>(view.buf) + i * sizeof row, sizeof row);
        const uint64_t remote = writes ? row.dst_at : row.src_at, local = writes ? row.src_at : row.dst_at;
        check(writes ? "dst" : "src", 0, limit, remote, row.size, i);
        check(writes ? "src" : "dst", own.last_address(), own.size(), local, row.size, i);
        if (row.size != 0) op->blocks.push_back({at + remote, mine.host() + local, row.size});
    }
    take_over(*op, mine, object);
    if (op->blocks.empty()) {
        if (notify == 0) return;   // there is nothing to do, and nobody to tell
        op->local = nullptr;       // 0 bytes, and the record
    }
    carry_out(op, stream);
}

}  // namespace

void write_far(const FarHandle& end, const StreamHandle* stream, uint32_t memory, uint64_t at, nb::handle src, uint32_t notify) {
    const Memory& own = *nb::inst_ptr<Memory>(src);
    const FarOpPtr op = begun(end, FarOp::Verb::write, memory, at, own.size(), notify);
    Operand mine = readable(own);
    take_over(*op, mine, src);
    carry_out(op, stream);
}

bool write_far_copied(const FarHandle& end, uint32_t memory, uint64_t at, const char* src, uint64_t size, uint32_t notify) {
    const FarOpPtr op = begun(end, FarOp::Verb::write, memory, at, size, notify);
    op->copied = std::make_unique_for_overwrite<char[]>(size);
    FaultGuard guard;
    if (!guarded(guard, [&] { memcpy(op->copied.get(), src, size); })) return false;   // a file that was cut short while it is mapped
    op->local = op->copied.get();
    carry_out(op, nullptr);
    return true;
}

void notify_far(const FarHandle& end, const StreamHandle* stream, uint32_t index) {
    carry_out(begun(end, FarOp::Verb::notify, 0, 0, 0, index + 1), stream);
}

void release_far() {
    if (!net::FarNode::get().has_returned()) return;
    for (void* object : net::FarNode::get().take_returned()) Py_DECREF(static_cast<PyObject*>(object));
}

void bind_far(nb::module_& m) {
    m.def(
        "far_start",
        [](const std::string& library, const std::string& interface) -> nb::object {
            try {
                const GilReleased gil;
                net::FarNode::start({library, interface});
            } catch (const net::Unavailable& unavailable) {
                nb::list tried;
                for (const std::string& each : unavailable.tried) tried.append(each);
                return tried;
            } catch (const net::Failed& failed) {
                return nb::str(failed.what.c_str());
            }
            const net::Engine& engine = *net::Engine::get();
            return nb::make_tuple(nb::bytes(engine.address().data(), engine.address().size()), engine.library(), engine.version());
        },
        "library"_a, "interface"_a, nb::sig("def far_start(library: str, interface: str) -> tuple[bytes, str, str] | list[str] | str"),
        "Start the engine, once; return this process's address, the library and its version, what was tried to load one, or why it does "
        "not start.");
    m.def("far_unreachable", [](double seconds) { net::FarNode::get().set_unreachable(static_cast<uint64_t>(seconds * 1e9)); }, "seconds"_a,
          "After how many seconds of silence a process is lost.");
    m.def("far_deliver", [] { net::FarNode::get().deliver_all(); }, nb::call_guard<GilReleased>(),
          "Deliver the withheld writes of all peers.");
    m.def("far_refused", [] { return net::FarNode::get().refused(); }, "How many messages were not of a channel of this process.");
    nb::class_<FarHandle>(m, "FarEnd", "An end of a channel to a process of another machine.")
        .def(
            "__init__",
            [](FarHandle* self, const nb::list& grants, const ChannelLinesHandle& lines, bool withholds, const MembersHandle* members, uint32_t peer) {
                std::vector<Memory> memories;
                for (nb::handle each : grants) {
                    const auto& memory = nb::cast<const Memory&>(each);
                    memories.emplace_back(memory, 0, memory.size());
                }
                std::vector<Notify*> notifies;
                for (uint32_t i = 0; i < lines.lines->count; ++i) notifies.push_back(&lines.lines->at(i));
                auto channel = std::make_shared<net::FarChannel>(std::move(memories), std::move(notifies), withholds,
                                                                 members ? members->members : nullptr, peer);
                channel->enter();
                new (self) FarHandle(std::move(channel));
            },
            "grants"_a, "lines"_a, "withholds"_a, "members"_a.none(), "peer"_a,
            nb::sig("def __init__(self, grants: typing.Sequence[Memory], lines: ChannelLines, withholds: bool, "
                    "members: Members | None, peer: int) -> None"),
            "`grants`: memory that the peer may use; `lines`: notifies that it may record; `withholds`: what it writes is there when this "
            "end waits for a later record; `members`: of the group in which it is rank `peer`.")
        .def_prop_ro("number", [](const FarHandle& self) { return self.channel->number(); })
        .def_prop_ro("process", [](const FarHandle&) { return net::FarNode::get().process(); }, "The number of this process, for its peers.")
        .def_prop_ro("secret", [](const FarHandle& self) { return self.channel->secret(); })
        .def_prop_ro("peer_bank", [](const FarHandle& self) { return self.channel->peer_bank(); }, "In event logs, the bank of the peer's notifies; once it is open.")
        .def(
            "set_blocks",
            [](const FarHandle& self, const std::vector<std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>>& memories) {
                std::vector<std::vector<log::Span>> memory_spans;
                for (const auto& each : memories) {
                    std::vector<log::Span>& spans = memory_spans.emplace_back();
                    for (const auto& [block, offset, size] : each) spans.push_back({block & ~log::Span::kWritten, offset, size});
                }
                self.channel->set_peer_spans(std::move(memory_spans));
            },
            "blocks"_a, nb::sig("def set_blocks(self, blocks: list[list[tuple[int, int, int]]]) -> None"),
            "The blocks of the peer's memories, for the event log, with offsets and sizes; before the first operation.")
        .def(
            "blocks",
            [](const FarHandle& self, uint32_t memory, uint64_t at, uint64_t size) {
                std::vector<std::tuple<uint64_t, uint64_t, uint64_t>> blocks;
                for (const log::Span& each : self.channel->peer_spans_of(memory, at, size)) blocks.emplace_back(each.block, each.offset, each.size);
                return blocks;
            },
            "memory"_a, "at"_a, "size"_a, "The blocks of a part of a memory; empty: the peer has no event log.")
        .def_prop_ro("why_lost", [](const FarHandle& self) { return self.channel->why_lost(); }, "Why the peer is lost; empty: it is not.")
        .def(
            "open",
            [](const FarHandle& self, const nb::bytes& address, uint64_t process, uint64_t number, uint64_t secret, uint32_t peer) {
                const std::string where(address.c_str(), address.size());
                try {
                    const GilReleased gil;
                    self.channel->open(where, process, number, secret, peer);
                } catch (const net::Failed& failed) {
                    throw std::runtime_error(failed.what);
                }
            },
            "address"_a, "process"_a, "number"_a, "secret"_a, "peer"_a, "Connect it; RuntimeError, in the engine's words, if there is no way.")
        .def("close", [](const FarHandle& self) { self.channel->close(); }, nb::call_guard<GilReleased>(),
             "Tell the peer, once all its operations are over; idempotent.")
        .def("transports", [](const FarHandle& self) { return self.channel->transports(); }, nb::call_guard<GilReleased>(),
             "The ways to the peer, in the engine's words.")
        .def(
            "write",
            [](const FarHandle& self, const StreamHandle* stream, uint32_t memory, uint64_t at, nb::handle_t<Memory> src, uint32_t notify) {
                write_far(self, stream, memory, at, src, notify);
            },
            "stream"_a.none(), "memory"_a, "at"_a, "src"_a, "notify"_a,
            nb::sig("def write(self, stream: Stream | None, memory: int, at: int, src: Memory, notify: int) -> None"),
            "`notify`: its number plus 1, or 0.")
        .def(
            "read",
            [](const FarHandle& self, const StreamHandle* stream, nb::handle_t<Memory> dst, uint32_t memory, uint64_t at) {
                const Memory& own = *nb::inst_ptr<Memory>(dst);
                const FarOpPtr op = begun(self, FarOp::Verb::read, memory, at, own.size());
                Operand mine = writable(own);
                take_over(*op, mine, dst);
                carry_out(op, stream);
            },
            "stream"_a.none(), "dst"_a, "memory"_a, "at"_a,
            nb::sig("def read(self, stream: Stream | None, dst: Memory, memory: int, at: int) -> None"))
        .def(
            "reduce",
            [](const FarHandle& self, const StreamHandle* stream, uint32_t memory, uint64_t at, nb::handle_t<Memory> src, unsigned number,
               uint32_t notify) {
                const Memory& own = *nb::inst_ptr<Memory>(src);
                const Reduction& reduction = reduction_numbered(number);
                const FarOpPtr op = begun(self, FarOp::Verb::reduce, memory, at, own.size(), notify);
                op->reduction = number;
                op->width = reduction.width;
                if (own.size() % reduction.width != 0) throw Refusal{.why = Why::no_whole_elements, .size = own.size(), .width = reduction.width};
                if (at % reduction.width != 0) throw Refusal{.why = Why::misaligned, .role = "dst", .address = at, .width = reduction.width};
                Operand mine = readable(own);
                take_over(*op, mine, src);
                carry_out(op, stream);
            },
            "stream"_a.none(), "memory"_a, "at"_a, "src"_a, "number"_a, "notify"_a,
            nb::sig("def reduce(self, stream: Stream | None, memory: int, at: int, src: Memory, number: int, notify: int) -> None"))
        .def(
            "write_blocks",
            [](const FarHandle& self, const StreamHandle* stream, uint32_t memory, uint64_t at, uint64_t limit, nb::handle_t<Memory> src,
               nb::handle table, uint32_t notify) { move_blocks(self, stream, true, memory, at, limit, src, table, notify); },
            "stream"_a.none(), "memory"_a, "at"_a, "limit"_a, "src"_a, "table"_a, "notify"_a,
            nb::sig("def write_blocks(self, stream: Stream | None, memory: int, at: int, limit: int, src: Memory, table: typing.Any, "
                    "notify: int) -> None"),
            "Rows of `table`: offset from `at` on, below `limit`; offset in `src`; bytes.")
        .def(
            "read_blocks",
            [](const FarHandle& self, const StreamHandle* stream, nb::handle_t<Memory> dst, uint32_t memory, uint64_t at, uint64_t limit,
               nb::handle table) { move_blocks(self, stream, false, memory, at, limit, dst, table, 0); },
            "stream"_a.none(), "dst"_a, "memory"_a, "at"_a, "limit"_a, "table"_a,
            nb::sig("def read_blocks(self, stream: Stream | None, dst: Memory, memory: int, at: int, limit: int, table: typing.Any) -> None"),
            "Rows of `table`: offset in `dst`; offset from `at` on, below `limit`; bytes.")
        .def(
            "notify",
            [](const FarHandle& self, const StreamHandle* stream, uint32_t index) { notify_far(self, stream, index); },
            "stream"_a.none(), "index"_a, nb::sig("def notify(self, stream: Stream | None, index: int) -> None"));
}
