// Where nothing can run: what a process waits for, what the ranks of a group say of it, and who looks.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "memory/threads.h"
#include "python/bind_signals.h"
#include "ranks/faults.h"
#include "ranks/wait_board.h"
#include "stream/scheduler.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr uint64_t kBetweenLooks = 80'000'000, kRarest = 400'000'000, kShareOfTime = 200;   // half a percent of a core

PyObject* wait_hook = nullptr;   // strong; set and called with the GIL
std::atomic<bool> has_hook{false};
std::atomic<uint64_t> next_look{0};

uint64_t spent_ns() {   // by this thread, of a core
    timespec spent{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return static_cast<uint64_t>(spent.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(spent.tv_nsec);
}

// One of the threads that wait, a few times a second.
bool is_due() {
    if (!has_hook.load(std::memory_order_relaxed)) return false;
    uint64_t at = next_look.load(std::memory_order_relaxed);
    const uint64_t now = now_ns();
    return now >= at && next_look.compare_exchange_strong(at, now + kBetweenLooks, std::memory_order_relaxed);
}

// False with Python's error set.
bool look() {
    if (!wait_hook) return true;
    const uint64_t start = spent_ns();
    const nb::object held = nb::borrow(wait_hook);
    const nb::object result = nb::steal(PyObject_CallNoArgs(held.ptr()));
    const uint64_t pause = std::clamp(kShareOfTime * (spent_ns() - start), kBetweenLooks, kRarest);
    next_look.store(now_ns() + pause, std::memory_order_relaxed);
    return result.is_valid();
}

void look_aside() {
    if (!look()) PyErr_WriteUnraisable(wait_hook);
}

bool ask(void* is_main) {
    if (is_main) {
        const nb::gil_scoped_acquire gil;
        // What a handler of a signal raises while the hook runs is the wait's, as what it raises before.
        return PyErr_CheckSignals() != 0 || (is_due() && !look());
    }
    if (is_due()) with_gil_unless_exiting(look_aside);
    return false;
}

}  // namespace

namespace {

void* release_gil() { return PyGILState_Check() ? new GilReleased : nullptr; }
void restore_gil(void* released) { delete static_cast<GilReleased*>(released); }
void check_signals() {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void bind_turns(nb::module_& m) {
    Turns::use({release_gil, restore_gil, check_signals});
    nb::class_<TurnsHandle>(m, "Turns", "A rank's part in its group's turns.")
        .def(
            "__init__",
            [](TurnsHandle* self, const SignalHandle& bank, const MembersHandle& members, uint32_t rank) {
                const uint32_t lines = bank.signal->bank(), ranks = lines / WaitBoard::lines(1);
                if (lines != WaitBoard::lines(ranks) || rank >= ranks) throw nb::index_error("no board has this many lines, or this rank");
                new (self) TurnsHandle{
                    std::make_shared<Turns>(bank.signal, members.members, rank, ranks, WaitBoard::first_of_turns(ranks))};
            },
            "bank"_a, "members"_a, "rank"_a)
        .def(
            "join",
            [](const TurnsHandle& self, double seconds) {
                const GilReleased gil;
                Turns::join(self.turns, static_cast<uint64_t>(seconds * 1e9));
            },
            "seconds"_a, "The calling thread is this rank from now on; wait for the others.")
        .def("decline", [](const TurnsHandle& self) { self.turns->decline(); }, "Take no turns.")
        .def("leave", [](const TurnsHandle& self) { self.turns->leave(); }, "Take no turns any more.")
        .def_prop_ro("steps", [](const TurnsHandle& self) { return self.turns->steps(); })
        .def_prop_ro(
            "why", [](const TurnsHandle& self) { return std::make_pair(self.turns->why() & 0xFF, self.turns->why() >> 8); },
            "Why the run may not repeat, 0 if it does, and the rank that it is about.");
    m.def("is_turns_participant", [] { return Turns::is_on() && Turns::is_participant(); }, "Whether the calling thread is a rank that takes turns.");
    m.def("turn_point", [] { Turns::point(); }, "Let another rank go first.");
    m.def(
        "wait_in_turns",
        [](int fd, double seconds) {
            const GilReleased gil;
            const auto is_readable = [fd] {
                pollfd asked{fd, POLLIN, 0};
                return poll(&asked, 1, 0) != 0;
            };
            return Scheduler::get().wait_in_turns(is_readable, Deadline::in(seconds).at);
        },
        "fd"_a, "seconds"_a, "Wait until something can be read there, in turns; False: not within these seconds.");
    m.def("regain_turn", &Turns::regain, nb::call_guard<GilReleased>(), "Wait for the next turn.");
    m.def("suspend_turns", &Turns::suspend, "What the calling thread does from now on is not a step of the program.");
    m.def("resume_turns", &Turns::resume);
    m.def("go_inside", &Turns::go_inside, "Wait for an answer of another process, with the turn.");
    m.def("come_out", &Turns::come_out);
    m.def(
        "plan_faults",
        [](const std::vector<std::tuple<uint64_t, bool, uint64_t, std::string, std::string>>& planned, std::string report) {
            std::vector<PlannedFault> faults;
            for (const auto& [op, kills, nanoseconds, noted, message] : planned) faults.push_back({op, kills, nanoseconds, noted, message});
            plan_faults(std::move(faults), std::move(report));
        },
        "faults"_a, "report"_a,
        "At its n-th logged event (op, whether it is killed, else nanoseconds that it sleeps, what is appended to the report, what "
        "standard error gets) something happens to this process.");
    m.def("counted_events", &counted_events, "How many logged events were counted since faults were planned.");
    m.def("own_steps", &Turns::own_steps, "How many steps the seed has drawn outside of groups.");
}

}  // namespace

Poll poll_waiting() {
    static char yes;
    return {ask, poll_of_thread().ask ? &yes : nullptr};
}

void bind_waits(nb::module_& m) {
    bind_turns(m);
    m.def(
        "set_wait_hook",
        [](nb::object called) {
            // The old one goes last: what its end runs may come here again, or look.
            const nb::object before = nb::steal(std::exchange(wait_hook, called.is_none() ? nullptr : called.release().ptr()));
            has_hook.store(wait_hook != nullptr, std::memory_order_relaxed);
        },
        "called"_a.none(), nb::sig("def set_wait_hook(called: typing.Callable[[], None] | None) -> None"),
        "Call it about ten times a second while threads of the program wait for long.");
    m.def(
        "no_progress",
        [](bool others_wait) -> nb::object {
            NoProgress no_progress;
            {
                const GilReleased gil;
                no_progress = Scheduler::get().no_progress(others_wait);
            }
            if (no_progress.token == 0) return nb::none();
            nb::list hosts, parked;
            for (const auto& host : no_progress.hosts) hosts.append(nb::make_tuple(host.thread, host.stream));
            for (const auto& each : no_progress.parked)
                parked.append(nb::make_tuple(each.stream, each.sequence, site_of(each.site), each.park == Park::notify, each.what,
                                             each.is_local));
            return nb::make_tuple(no_progress.token, hosts, parked);
        },
        "others_wait"_a, nb::sig("def no_progress(others_wait: bool) -> tuple[int, list[tuple[int, int]], list[tuple[int, int, tuple[types.CodeType, int] | None, bool, "
                "int, bool]]] | None"),
        "None if something can run, or a wait ends by itself, else (token, waiting threads and their streams, (stream, operation, site, whether for a notify, "
        "the notify or stream that it waits for, whether only this process can record it) of parked streams).");
    m.attr("NET_SECONDS") = Deadline::kNetSeconds;
    m.def("foreign_threads", &foreign_threads, "known"_a, "may_watch"_a,
          "None if a native thread that peerlane did not make, and that is not one of these, may run by itself; else a number that "
          "changes when one has run.  `may_watch`: one of them may be the thread of Python's faulthandler.");
    m.def("put_off_losses", [] { Scheduler::get().put_off_losses(); }, nb::call_guard<GilReleased>(),
          "For a second no wait fails because a peer is lost: the verdict on a deadlock is reported first.");
    m.def(
        "end_waits",
        [](uint64_t token, uint64_t number, bool others_wait) {
            const GilReleased gil;
            return Scheduler::get().end_waits(token, number, others_wait);
        },
        "token"_a, "number"_a, "others_wait"_a, "Let the waits for notifies fail; False if something has happened since the token was given.");

    m.def(
        "log_waits_in_vain", [](uint64_t token, bool others_wait) { Scheduler::get().log_waits_in_vain(token, others_wait); }, "token"_a, "others_wait"_a,
        nb::call_guard<GilReleased>(), "Log that the waits of this process will end in vain, unless something has moved since `token`.");
    m.def(
        "refuse_waits",
        [](uint64_t token, uint64_t number) {
            const GilReleased gil;
            return Scheduler::get().refuse_waits(token, number);
        },
        "token"_a, "number"_a, "Refuse the waits of threads for streams; False if something has happened since the token was given.");

    nb::class_<WaitBoard>(m, "WaitBoard", "What the ranks of a group say of themselves while nothing of them can run.")
        .def(
            "__init__",
            [](WaitBoard* self, const SignalHandle& bank, uint32_t rank) {
                const uint32_t lines = bank.signal->bank(), ranks = lines / WaitBoard::lines(1);
                if (lines != WaitBoard::lines(ranks) || ranks > WaitBoard::kMostRanks || rank >= ranks)
                    throw nb::index_error("no board has this many lines, or this rank");
                new (self) WaitBoard(bank.signal, rank);
            },
            "bank"_a, "rank"_a)
        .def_static("lines", &WaitBoard::lines, "ranks"_a, "How many lines the bank must have.")
        .def(
            "begin",
            [](WaitBoard& self, uint64_t now, const std::vector<uint32_t>& awaited, const nb::bytes& text, bool over_store, bool has_children) {
                self.begin(now, awaited, {text.c_str(), text.size()},
                           (over_store ? WaitBoard::kOverStore : 0) | (has_children ? WaitBoard::kHasChildren : 0));
            },
            "now_ns"_a, "awaited"_a, "text"_a, "over_store"_a = false, "has_children"_a = false)
        .def("renew", &WaitBoard::renew, "now_ns"_a)
        .def("withdraw", &WaitBoard::withdraw)
        .def("circle", &WaitBoard::circle, "overlap_ns"_a)
        .def("reached", &WaitBoard::reached)
        .def("in_vain", &WaitBoard::in_vain)
        .def("condemn", &WaitBoard::condemn, "ranks"_a)
        .def_prop_ro("is_condemned", &WaitBoard::is_condemned)
        .def("acknowledge", &WaitBoard::acknowledge)
        .def("have_acknowledged", &WaitBoard::have_acknowledged, "ranks"_a)
        .def("spell", &WaitBoard::spell, "rank"_a)
        .def(
            "text",
            [](const WaitBoard& self, uint32_t rank) {
                const std::string text = self.text(rank);
                return nb::bytes(text.data(), text.size());
            },
            "rank"_a, "The text that the rank wrote last; any bytes.");
}
