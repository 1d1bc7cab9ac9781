// Messages between ranks on one machine: at once in the calling thread, or as one operation of a stream.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "python/bind_collectives.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

int run_message(MailsHandle& self, uint32_t peer, bool sends, const Memory& memory, CanFault can_fault) {
    if (!may_make_calls(self.log.get()) || Turns::is_on() || !self.is_plain) [[unlikely]] return 0;
    MailsHandle::One& one = self.of[peer];
    if (!one.mail || !one.mail->direction(sends) || one.mail->farewell->is_sent()) return 0;
    const std::shared_ptr<Mail> mail = one.mail;
    Mail::Direction& direction = *mail->direction(sends);
    if (!direction.claim_mutex.try_lock()) return 0;
    Claim claim{direction.claim_mutex};
    Range range;
    try {
        range = sends ? memory.pin() : memory.pin_writable();
    } catch (const Refusal&) {   // who is called next says why
        return 0;
    }
    ++direction.calls;
    LoggedCall logged(log::wanted() ? self.log.get() : nullptr, sends ? GroupCall::Kind::send : GroupCall::Kind::receive, peer, sends ? Range{} : range,
                      memory.size(), sends ? range : Range{}, memory.size());
    Message message(mail, sends, range, memory.size());
    Stepwise::Step step{};
    Refusal why{};
    if (run_patiently(message, can_fault, memory.size() <= kBrief && !direction.is_local, mail->must_yield, step, why)) {
        logged.is_over();
        return 1;
    }
    one.begun(sends).emplace(std::move(message));
    one.logged(sends) = logged.begun();
    claim.is_kept = true;
    return 2;
}

namespace {

std::vector<Notify*> lines_from(ChannelLines& of, uint32_t first, uint32_t depth) {
    std::vector<Notify*> lines;
    for (uint32_t i = 0; i < depth; ++i) lines.push_back(&of.at(first + i));
    return lines;
}

Mail::Direction* direction_or_none(const MailsHandle& self, uint32_t peer, bool sends) {
    const std::shared_ptr<Mail>& mail = self.of.at(peer).mail;
    return mail ? mail->direction(sends).get() : nullptr;
}

Mail::Direction& direction_of(const MailsHandle& self, uint32_t peer, bool sends) {
    Mail::Direction* const direction = direction_or_none(self, peer, sends);
    if (!direction) throw nb::value_error("there is no such direction");
    return *direction;
}

bool is_ready(const MailsHandle& self, uint32_t peer, bool sends, const std::vector<uint64_t>& sizes, bool looks_on) {
    if (Turns::is_on() || !self.is_plain) return false;
    Mail::Direction* const direction = direction_or_none(self, peer, sends);
    const std::shared_ptr<Mail> mail = self.of.at(peer).mail;
    if (!direction || mail->farewell->is_sent() || !direction->claim_mutex.try_lock()) return false;
    const uint64_t before = direction->pieces;
    direction->claim_mutex.unlock();
    uint64_t count = 0;
    for (const uint64_t size : sizes) count += direction->pieces_of(size);
    const auto may = [&] { return sends ? direction->may_send(before, count) : direction->may_receive(before, count); };
    if (may() || !looks_on) return may();
    const GilReleased gil;
    return poll_until(may, mail->must_yield ? Leaves::at_once : Leaves::later, patience_of(mail->must_yield));
}

}  // namespace

void bind_messages(nb::module_& m) {
    nb::class_<MailsHandle>(m, "Mails", "The messages between a rank and the others of its machine.")
        .def(
            "__init__", [](MailsHandle* self, uint32_t size) { new (self) MailsHandle{std::vector<MailsHandle::One>(size)}; }, "size"_a)
        .def("has", [](const MailsHandle& self, uint32_t peer, bool sends) { return direction_or_none(self, peer, sends) != nullptr; }, "peer"_a, "sends"_a,
             "Whether add() was called.")
        .def(
            "add",
            [](MailsHandle& self, uint32_t rank, uint32_t peer, bool sends, std::pair<const ChannelLinesHandle*, uint32_t> sent,
               std::pair<const ChannelLinesHandle*, uint32_t> taken, uint32_t depth, const Memory& slots, pid_t pid, const FarewellHandle& farewell,
               bool must_yield) {
                const uint64_t slot = depth == 0 ? 0 : slots.size() / depth;
                if (slot * depth != slots.size() || slot <= Mail::kInLine) throw nb::value_error("not as many slots as lines");
                for (const auto& [of, first] : {sent, taken})
                    if (of->lines->count < uint64_t{first} + depth) throw nb::value_error("not as many lines as slots");
                std::vector<Notify*> of_sent = lines_from(*sent.first->lines, sent.second, depth), of_taken = lines_from(*taken.first->lines, taken.second, depth);
                std::shared_ptr<Mail>& mail = self.of.at(peer).mail;
                if (!mail) mail = std::make_shared<Mail>(rank, peer, pid, must_yield, farewell.farewell);
                if (mail->direction(sends)) throw nb::value_error("there is such a direction already");
                const Range pinned = sends ? slots.pin_writable() : slots.pin();
                mail->direction(sends) = std::make_unique<Mail::Direction>(std::move(of_sent), std::move(of_taken), pinned, slot);
            },
            "rank"_a, "peer"_a, "sends"_a, "sent"_a, "taken"_a, "depth"_a, "slots"_a, "pid"_a, "farewell"_a, "must_yield"_a,
            nb::sig("def add(self, rank: int, peer: int, sends: bool, sent: tuple[ChannelLines, int], taken: tuple[ChannelLines, int], depth: int, "
                    "slots: Memory, pid: int, farewell: Farewell, must_yield: bool) -> None"),
            "Messages to a peer, or from it: the lines that tell of a piece, those that tell of its taking, each with the first, and as many slots in "
            "the receiver's memory.")
        .def(
            "run",
            [](MailsHandle& self, uint32_t peer, bool sends, const Memory& memory, nb::handle finish) {
                const int how = run_message(self, peer, sends, memory);
                if (how == 2) self.hand_over(peer, sends, [&] { return PyObject_CallNoArgs(finish.ptr()); });
                return how != 0;
            },
            "peer"_a, "sends"_a, "memory"_a, "finish"_a, "Make a message in this thread, or return False, as Rounds.run().")
        .def("is_ready", &is_ready, "peer"_a, "sends"_a, "sizes"_a, "looks_on"_a,
             "Whether the next messages, of these sizes, would not wait for the peer; it may look on as long as run() waits in its thread.")
        .def(
            "queue_begun",
            [](MailsHandle& self, uint32_t peer, bool sends, const StreamHandle& stream, uint64_t timeout_ns, nb::handle keep) {
                std::optional<Message>& begun = self.of.at(peer).begun(sends);
                auto message = std::make_unique<Message>(std::move(begun.value()));
                begun.reset();
                queue_steps(stream, std::move(message), timeout_ns, keep);
            },
            "peer"_a, "sends"_a, "stream"_a, "timeout_ns"_a, "keep"_a.none())
        .def(
            "queue",
            [](const MailsHandle& self, uint32_t peer, bool sends, const StreamHandle& stream, uint64_t timeout_ns, nb::handle buffer) {
                const Memory& memory = nb::cast<const Memory&>(buffer);
                (void)direction_of(self, peer, sends);
                const nb::object keep = sends ? kept(nb::handle(), buffer) : kept(buffer, nb::handle());
                const Range range = sends ? memory.pin() : memory.pin_writable();
                queue_steps(stream, std::make_unique<Message>(self.of.at(peer).mail, sends, range, memory.size()), timeout_ns, keep);
            },
            "peer"_a, "sends"_a, "stream"_a, "timeout_ns"_a, "buffer"_a)
        .def("count", [](const MailsHandle& self, uint32_t peer, bool sends) { return ++direction_of(self, peer, sends).calls; }, "peer"_a, "sends"_a,
             "Count a message that run() does not make; its number.")
        .def(
            "calls",
            [](const MailsHandle& self, uint32_t peer, bool sends) {
                const Mail::Direction* const direction = direction_or_none(self, peer, sends);
                return direction ? direction->calls : 0;
            },
            "peer"_a, "sends"_a, "How many messages there were.")
        .def(
            "claim", [](const MailsHandle& self, uint32_t peer, bool sends, double seconds) { return claim(direction_of(self, peer, sends).claim_mutex, seconds); },
            "peer"_a, "sends"_a, "seconds"_a, "Claim one direction for this thread; False: another thread still has the claim.")
        .def(
            "release",
            [](MailsHandle& self, uint32_t peer, bool sends) { end_claim(self.of.at(peer).begun(sends), direction_of(self, peer, sends).claim_mutex); }, "peer"_a,
            "sends"_a, "End the claim; a call that run() has begun in it and nobody has queued ends.")
        .def_rw("log", &MailsHandle::log, "As Rounds.log.", nb::arg().none())
        .def_prop_rw(
            "is_plain", [](const MailsHandle& self) { return self.is_plain.load(); }, [](MailsHandle& self, bool is_plain) { self.is_plain = is_plain; },
            "Whether run() may make a message: nothing is queued.")
        .def(
            "let_go",
            [](MailsHandle& self) {
                for (MailsHandle::One& one : self.of)
                    if (one.mail && one.mail.use_count() == 1) one.mail->memory.forget();
            },
            "Let go of what peers' memory is mapped here; there are no more messages.");
}
