// Streams, marks, groups, notifies and queues of callbacks, as Python holds them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>

#include "memory/memory.h"
#include "python/bind_signals.h"
#include "stream/scheduler.h"
#include "stream/wait_set.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr const char* kParks[] = {"", "record", "notify", "callback", "group", "value", "far"};

// (exception, stream, sequence, kind, token, cause, device, site, the stream's site, ends), None for no failure.
nb::object as_object(const FailurePtr& failure) {
    if (!failure) return nb::none();
    const Ends& ends = failure->ends;
    return nb::make_tuple(as_exception(failure->refusal), failure->stream, failure->sequence,
                          name_of(failure->kind), failure->token, as_object(failure->cause), failure->device,
                          site_of(failure->site), site_of(failure->stream_site),
                          nb::make_tuple(ends.dst, ends.dst_id, ends.src, ends.src_id, ends.size, ends.rows, ends.notify));
}

// Not taken while the module is loaded: a program that forks before its first call is fine.
Scheduler& scheduler() { return Scheduler::get(); }

template <class Wait>
bool waited(const Wait& wait) {
    Outcome outcome;
    {
        const GilReleased gil;
        outcome = wait(poll_waiting());
    }
    if (outcome == Outcome::interrupted) throw nb::python_error();   // the signal handler's exception: code that runs now loses it
    release_kept();
    return outcome == Outcome::reached;
}

// Callbacks that a thread has taken and not finished; under the GIL.
std::map<uint64_t, StreamPtr>& running() {
    static auto* table = new std::map<uint64_t, StreamPtr>;
    return *table;
}

using HeldMark = Held<Mark>;
using HeldCallbacks = Held<CallbackQueue>;

// The operation holds what it names until it is over.
template <class Shared>
void submit_holding(const StreamHandle& self, const Op& op, Shared& shared) {
    note_site();
    shared.hold();
    try {
        scheduler().submit(*self.stream, op, call_site());
    } catch (...) {
        shared.drop();
        throw;
    }
    log_if_observed();
}

// A warning that became an exception must not look like a failure of the call that it comes with.
void warn_of_lost() {
    if (!scheduler().has_lost()) return;
    for (const FailurePtr& failure : scheduler().take_lost()) {
        try {
            nb::module_::import_("peerlane.backends.virtual.messages.streams").attr("warn_of_lost")(as_object(failure));
        } catch (nb::python_error& error) {
            error.discard_as_unraisable("a stream that was dropped");
        }
    }
}

}  // namespace

static StreamPtr create_stream(uint32_t device, bool stops, std::shared_ptr<Group> group, bool legacy) {
    note_site();
    return Scheduler::get().create(device, stops, std::move(group), legacy);
}

StreamHandle::StreamHandle(uint32_t device, bool stops, std::shared_ptr<Group> group, bool legacy)
    : stream(create_stream(device, stops, std::move(group), legacy)) {
    stream->site = call_site();
}
StreamHandle::~StreamHandle() {
    try {
        Scheduler::get().drop(*stream);
        const nb::error_scope raised;   // objects go while exceptions pass
        warn_of_lost();
    } catch (...) {
        // No error can leave a destructor; the queued operations still end.
    }
}

void release_kept() {
    warn_of_lost();
    release_far();
    if (!Scheduler::get().has_released()) return;
    std::vector<void*> objects;
    std::vector<uint64_t> tokens;
    Scheduler::get().take_released(objects, tokens);
    for (void* object : objects) Py_DECREF(static_cast<PyObject*>(object));
    static nb::object& hook = *new nb::object(nb::module_::import_("peerlane.streams.callbacks").attr("forget"));
    for (uint64_t token : tokens) hook(token);
}

static void note_closing(const StreamHandle& self) {
    if (!self.stream->closing && !self.stream->closed) self.stream->closed_site = call_site();
}

void submit_notify(const StreamHandle& stream, Notify& notify) {
    submit_holding(stream, {.kind = OpKind::notify, .notify = &notify}, notify);
}

template <class MakeDeadline>
static bool synchronize_stream(Stream& stream, const MakeDeadline& deadline) {
    const uint64_t target = stream.submitted.load();
    bool done = stream.completed.load(std::memory_order_acquire) == target;
    if (done)
        release_kept();
    else
        done = waited([&](Poll poll) { return scheduler().synchronize(stream, deadline(), poll); });
    if (done && log::wanted()) [[unlikely]] log_sync(stream.id, target);
    return done;
}

static void bind_stream(nb::module_& m) {
    nb::class_<StreamHandle>(m, "Stream", "An ordered queue of operations.")
        .def(
            "__init__",
            [](StreamHandle* self, uint32_t device, bool stops, const GroupHandle* group, bool legacy) {
                new (self) StreamHandle(device, stops, group ? group->group : nullptr, legacy);
            },
            "device"_a, "stops"_a, "group"_a.none(), "legacy"_a)
        .def_prop_ro("id", [](const StreamHandle& self) { return self.stream->id; })
        .def_prop_ro("submitted", [](const StreamHandle& self) { return self.stream->submitted.load(); },
                     "Number of the last operation that was submitted.")
        .def_prop_ro("completed", [](const StreamHandle& self) { return self.stream->completed.load(); },
                     "Number of the last operation that is over.")
        .def_prop_ro("_is_live", [](const StreamHandle& self) { return !self.stream->closing && !self.stream->closed; })
        .def(
            "_query",
            [](const StreamHandle& self) {
                const uint64_t target = self.stream->submitted.load();
                bool done = self.stream->completed.load() == target;
                if (!done) {
                    const GilReleased gil;
                    done = scheduler().query(*self.stream);
                }
                if (done && log::wanted()) [[unlikely]] log_sync(self.stream->id, target);
                return done;
            },
            "Whether everything submitted is over.")
        .def(
            "_synchronize",
            [](const StreamHandle& self, double seconds) {
                Heap::get().check_usable();
                return synchronize_stream(*self.stream, [&] { return Deadline::in(seconds); });
            },
            "seconds"_a, "Wait for what was submitted by now; False when `seconds` (negative: for ever) are over.")
        .def("_take_failure", [](const StreamHandle& self) { return as_object(scheduler().take_failure(*self.stream)); },
             nb::sig("def _take_failure(self) -> typing.Any"),
             "The first failure that was not taken yet; the stream goes on.")
        .def(
            "_close",
            [](const StreamHandle& self, bool wait) {
                note_closing(self);
                const uint64_t target = self.stream->submitted.load();
                if (!self.stream->closed) waited([&](Poll poll) { return scheduler().close(*self.stream, wait, poll); });
                if (wait && log::wanted() && self.stream->completed.load(std::memory_order_acquire) >= target) [[unlikely]]
                    log_sync(self.stream->id, target);
            },
            nb::kw_only(), "wait"_a = true, "Let what can end end, cancel waits that nothing submitted satisfies.")
        .def(
            "_cancel",
            [](const StreamHandle& self, bool close) {
                if (close) note_closing(self);
                const GilReleased gil;
                scheduler().abort(*self.stream, close);
            },
            "close"_a, "Cancel what is queued; running copies end at their next chunk.")
        .def("_set_stops", [](const StreamHandle& self, bool stops) { scheduler().set_stops(*self.stream, stops); },
             "stops"_a)
        .def(
            "_record_event",
            [](const StreamHandle& self, const EventHandle& event) {
                note_site();
                event.event->replace(scheduler().record(*self.stream));
                log_if_observed();
            },
            "event"_a, "Make the event's last record.")
        .def(
            "_wait_event",
            [](const StreamHandle& self, const EventHandle& event, uint64_t timeout_ns) {
                const HeldMark mark{event.event->mark()};
                if (!mark.shared) return false;
                note_site();
                scheduler().wait(*self.stream, *mark.shared, timeout_ns, call_site());
                log_if_observed();
                return true;
            },
            "event"_a, "timeout_ns"_a, "Wait for the event's last record; False if there is none.")
        .def(
            "_wait_mark",
            [](const StreamHandle& self, const HeldMark& mark, uint64_t timeout_ns, uint64_t only) {
                note_site();
                scheduler().wait(*self.stream, *mark.shared, timeout_ns, call_site(), only);
                log_if_observed();
            },
            "mark"_a, "timeout_ns"_a, "only"_a = 0,
            "`only`: if the mark has failed, that many operations behind the wait are cancelled, and the "
            "stream has not failed.")
        .def(
            "_record_notify",
            [](const StreamHandle& self, const HeldNotify& notify) {
                submit_notify(self, *notify.shared);
            },
            "notify"_a)
        .def(
            "_wait_notify",
            [](const StreamHandle& self, const HeldNotify& notify, uint64_t timeout_ns, bool consumes) {
                submit_holding(self,
                               {.kind = OpKind::wait_notify, .width = consumes, .notify = notify.shared, .timeout_ns = timeout_ns},
                               *notify.shared);
            },
            "notify"_a, "timeout_ns"_a, "consumes"_a = true, "`consumes`: else the record stays for another wait.")
        .def(
            "_callback",
            [](const StreamHandle& self, const HeldCallbacks& queue, uint64_t token) {
                submit_holding(self, {.kind = OpKind::callback, .callbacks = queue.shared, .value = token}, *queue.shared);
            },
            "queue"_a, "token"_a)
        .def(
            "_call_code",
            [](const StreamHandle& self, const HeldCallbacks& queue, uint64_t code, const std::vector<uint64_t>& words) {
                HostCall call{.code = code, .has_many = words.size() > 1};
                std::copy_n(words.begin(), std::min(words.size(), call.words.size()), call.words.begin());
                note_site();
                scheduler().call(*self.stream, *queue.shared, call, call_site());
                log_if_observed();
            },
            "queue"_a, "code"_a, "words"_a, "Call a function in C, with one word or three.")
        .def(
            "_free",
            [](const StreamHandle& self, Memory& memory, bool by_line) {
                Op op{.kind = OpKind::free};
                uint64_t id = 0;
                if (!memory.hand_over(op.dst_extent, id)) return;
                op.value = id;
                const log::ByNoLine unless_called;
                if (by_line) note_site();
                try {
                    scheduler().submit(*self.stream, op);
                } catch (...) {
                    memory.take_back();
                    throw;
                }
                log_if_observed();
            },
            "memory"_a, "by_line"_a, "Free an allocation when what was submitted by now is over; `by_line`: a line of the program asks for it.");
}

static bool query_mark(Mark& mark) {
    bool done = mark.state.load(std::memory_order_acquire) != Mark::pending;
    if (!done) {
        const GilReleased gil;
        done = scheduler().query(mark);
    }
    if (done && log::wanted()) [[unlikely]] log_sync(mark.stream_id, mark.sequence);
    return done;
}

static bool synchronize_mark(Mark& mark, double seconds) {
    Heap::get().check_usable();
    bool done = mark.state.load(std::memory_order_acquire) != Mark::pending;
    if (!done) {
        const Deadline deadline = Deadline::in(seconds);
        done = waited([&](Poll poll) { return scheduler().synchronize(mark, deadline, poll); });
    }
    if (done && log::wanted()) [[unlikely]] log_sync(mark.stream_id, mark.sequence);
    return done;
}

static void bind_marks(nb::module_& m) {
    nb::class_<HeldMark>(m, "Mark", "One record of an event.")
        .def_prop_ro("stream_id", [](const HeldMark& self) { return self.shared->stream_id; })
        .def_prop_ro("sequence", [](const HeldMark& self) { return self.shared->sequence; })
        .def_prop_ro(
            "time_ns",
            [](const HeldMark& self) -> std::optional<uint64_t> {
                if (self.shared->state.load(std::memory_order_acquire) == Mark::pending) return std::nullopt;
                if (log::wanted()) [[unlikely]] log_sync(self.shared->stream_id, self.shared->sequence);
                return self.shared->time_ns;
            },
            "Steady clock; None while it is pending.")
        .def("query", [](const HeldMark& self) { return query_mark(*self.shared); })
        .def("synchronize", [](const HeldMark& self, double seconds) { return synchronize_mark(*self.shared, seconds); }, "seconds"_a)
        .def("failure",
             [](const HeldMark& self) {
                 const bool has_failed = self.shared->state.load(std::memory_order_acquire) == Mark::failed;
                 return as_object(has_failed && !self.shared->failure->is_aborted() ? self.shared->failure : nullptr);
             },
             nb::sig("def failure(self) -> typing.Any"))
        .def("fileno", [](const HeldMark& self) { return scheduler().event_fd(*self.shared); },
             "A descriptor that is readable once the record is over; it lives as long as this object.");

    nb::class_<EventHandle>(m, "Event", "The last record of an event.")
        .def(nb::init<>())
        .def(
            "_query",
            [](const EventHandle& self) -> std::optional<bool> {
                const HeldMark mark{self.event->mark()};
                if (!mark.shared) return std::nullopt;
                return query_mark(*mark.shared);
            },
            "Whether the last record is over; None if there is none.")
        .def(
            "_synchronize",
            [](const EventHandle& self, double seconds) -> std::optional<bool> {
                const HeldMark mark{self.event->mark()};
                if (!mark.shared) return std::nullopt;
                if (!synchronize_mark(*mark.shared, seconds)) return false;
                if (mark.shared->state.load(std::memory_order_acquire) == Mark::failed) return std::nullopt;
                return true;
            },
            "seconds"_a, "Wait for the last record, and return whether it was over in time; None if there is none, or it failed.")
        .def_prop_ro(
            "_mark",
            [](const EventHandle& self) -> HeldMark* {
                Mark* const mark = self.event->mark();
                return mark ? new HeldMark{mark} : nullptr;
            },
            nb::rv_policy::take_ownership, nb::sig("def _mark(self) -> Mark | None"), "The last record, None if there is none.")
        .def("_end_quick_calls", [](const EventHandle& self) { self.event->end_quick_calls(); },
             "Let no call of C use it without Python any more: it is closed, or other processes know it.");

    nb::class_<WaitSet>(m, "WaitSet", "What the tasks of an event loop wait for, by tokens of the caller's.")
        .def(nb::init<>())
        .def("fileno", &WaitSet::fd, "A descriptor that is readable when a wait is over; it lives as long as this object.")
        .def(
            "add", [](WaitSet& self, uint64_t token, const StreamHandle& stream) { return self.add(token, *stream.stream); },
            "token"_a, "stream"_a, "Wait for what the stream was given by now; False, and nothing is added: that is over.")
        .def(
            "add", [](WaitSet& self, uint64_t token, const HeldMark& mark) { return self.add(token, *mark.shared); }, "token"_a,
            "mark"_a)
        .def("remove", &WaitSet::remove, "token"_a)
        .def(
            "take",
            [](WaitSet& self) {
                std::vector<uint64_t> over = self.take();
                release_kept();
                return over;
            },
            "The waits that are over, in the order in which they ended; they are not in the set any more.")
        .def(
            "take_hopeless",
            [](WaitSet& self) {
                std::vector<std::pair<uint64_t, nb::object>> hopeless;
                for (const auto& [token, refusal] : self.take_hopeless()) hopeless.emplace_back(token, as_exception(refusal));
                return hopeless;
            },
            nb::sig("def take_hopeless(self) -> list[tuple[int, typing.Any]]"),
            "The waits that no submitted operation would end, each with an exception; they are not in the set any more.")
        .def_static(
            "log_over", [](uint64_t stream, uint64_t sequence) {
                if (log::wanted()) [[unlikely]] log_sync(stream, sequence);
            },
            "stream"_a, "sequence"_a, "The task that waited goes on, and the calling thread with it.")
        .def_static("is_help_needed", [] { return scheduler().schedule() == Schedule::seeded; },
                    "Whether operations run only in the threads that wait: then call `help` while something waits.")
        .def_static("help", [] {
            const GilReleased gil;
            return scheduler().help_loop();
        }, "Run operations for which no other thread is there; True: more may follow.");

    nb::class_<GroupHandle>(m, "Group", "Streams with a legacy barrier.")
        .def(nb::init<>())
        .def_prop_ro("is_idle", [](const GroupHandle& self) { return self.group->is_idle(); },
                     "Whether all that its streams were given is over.");

    nb::class_<HeldCallbacks>(m, "CallbackQueue", "Where callbacks wait for the thread that runs them.")
        .def("__init__", [](HeldCallbacks* self) { new (self) HeldCallbacks{new CallbackQueue}; })
        .def(
            "take",
            [](const HeldCallbacks& self, double seconds) -> std::optional<uint64_t> {
                const Deadline deadline = Deadline::in(seconds);
                CallbackQueue::Item item;
                bool has_item = false;
                Outcome outcome = Outcome::timed_out;
                {
                    const GilReleased gil;
                    const Poll poll = poll_of_thread();
                    while (true) {
                        const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.at - Clock::now());
                        const auto slice = std::min(left, std::chrono::nanoseconds(std::chrono::milliseconds(100)));
                        has_item = self.shared->take(item, slice.count() > 0 ? static_cast<uint64_t>(slice.count()) : 0);
                        if (has_item && !scheduler().begin_callback(*item.stream, item.token)) continue;   // cancelled
                        if (has_item && item.call) {
                            (*item.call)();
                            scheduler().finish_callback(*item.stream, item.token, false);
                            continue;
                        }
                        if (has_item || left <= slice) break;
                        if (poll.ask && poll.ask(poll.context)) {
                            outcome = Outcome::interrupted;
                            break;
                        }
                    }
                }
                if (outcome == Outcome::interrupted) throw nb::python_error();
                if (!has_item) return std::nullopt;
                running()[item.token] = std::move(item.stream);
                return item.token;
            },
            "seconds"_a, "The token of the next callback, None when `seconds` (negative: for ever) are over.")
        .def(
            "finish",
            [](const HeldCallbacks&, uint64_t token, bool raised) {
                const auto stream_of_token = running().find(token);
                if (stream_of_token == running().end()) return;
                const StreamPtr stream = std::move(stream_of_token->second);
                running().erase(stream_of_token);
                const GilReleased gil;
                scheduler().finish_callback(*stream, token, raised);
            },
            "token"_a, "raised"_a, "Let the stream go on, by the thread that took the token.");
}

void bind_streams(nb::module_& m) {
    bind_marks(m);
    bind_stream(m);
    m.def(
        "configure_schedule",
        [](int schedule, uint64_t seed, const std::optional<std::vector<uint64_t>>& changes) {
            Draws draws{.seed = seed, .has_priorities = changes.has_value()};
            if (changes) draws.changes = *changes;
            scheduler().configure(static_cast<Schedule>(schedule), std::move(draws));
        },
        "schedule"_a, "seed"_a, "changes"_a.none() = nb::none(),
        "`schedule`: 0 eager, 1 lazy, 2 seeded.  `changes`: draw priorities, and change one at these steps, in order.");
    m.def(
        "synchronize_device",
        [](uint32_t device, double seconds) {
            Heap::get().check_usable();
            const Deadline deadline = Deadline::in(seconds);
            std::vector<std::pair<uint64_t, uint64_t>> reached;
            for (const StreamPtr& stream : scheduler().streams_of(device)) {
                const uint64_t target = stream->submitted.load();
                if (!synchronize_stream(*stream, [&] { return deadline; })) return std::make_pair(stream->id, reached);
                reached.emplace_back(stream->id, target);
            }
            return std::make_pair(uint64_t{0}, reached);
        },
        "device"_a, "seconds"_a,
        "Wait for what all streams of a device have by now; return the stream for which `seconds` were too short, or 0, "
        "and each stream before it with the number of its last operation.");
    m.def(
        "take_failure_on",
        [](uint32_t device) {
            for (const StreamPtr& stream : scheduler().streams_of(device))
                if (const FailurePtr failure = scheduler().take_failure(*stream)) return as_object(failure);
            return nb::object(nb::none());
        },
        nb::sig("def take_failure_on(device: int) -> typing.Any"), "device"_a,
        "As `Stream._take_failure`, of the first stream of a device that has one.");
    m.def(
        "is_stream_open",
        [](uint32_t device, uint64_t id) {
            for (const StreamPtr& stream : scheduler().streams_of(device))
                if (stream->id == id) return !stream->closing && !stream->closed;
            return false;
        },
        "device"_a, "id"_a, "Whether the stream of this number takes operations.");
    m.def("close_streams", [](uint32_t device) { scheduler().close_device(device); }, "device"_a,
          nb::call_guard<GilReleased>(), "Abort and close the streams of a device.");
    m.def(
        "drain", [] { waited([&](Poll poll) { return scheduler().drain(poll); }); },
        "Run what can run, on all streams.");
    m.def(
        "waiting",
        [] {
            nb::list waiting;
            for (const Waiting& entry : scheduler().waiting())
                waiting.append(nb::make_tuple(entry.stream, entry.sequence, entry.submitted, kParks[static_cast<int>(entry.park)],
                                            entry.what, entry.record, entry.device, site_of(entry.site)));
            return waiting;
        },
        nb::sig("def waiting() -> list[tuple[int, int, int, str, int, int, int, tuple[types.CodeType, int] | None]]"),
        "(stream, operation, submitted, waits for, whom, its operation, device, site) of every stream that is not done.");
    m.def(
        "awaited_words",
        [] {
            static constexpr const char* compares[] = {"at least", "equal to", "any bit of", "not all of", "as far as"};
            nb::list words;
            for (const AwaitedWord& word : scheduler().awaited_words())
                words.append(nb::make_tuple(word.stream, word.sequence, word.address, word.width, word.seen,
                                            compares[static_cast<int>(word.compare)], word.wanted, word.mask, site_of(word.site)));
            return words;
        },
        nb::sig("def awaited_words() -> list[tuple[int, int, int, int, int, str, int, int, tuple[types.CodeType, int] | None]]"),
        "(stream, operation, address, bytes, value, comparison, wanted, mask, site) of every wait for a word that has no time-out.");
    m.def("failures", [] { return Stream::failures.load(std::memory_order_acquire); }, "How many failures streams have kept so far.");
    struct AbortFlagHandle {
        const std::shared_ptr<AbortFlag> flag = std::make_shared<AbortFlag>();
    };
    nb::class_<AbortFlagHandle>(m, "AbortFlag", "Of operations that the program may abort together.")
        .def(nb::init<>())
        .def(
            "put_on",
            [](const AbortFlagHandle& self, const StreamHandle& stream) { scheduler().set_abort_flag(*stream.stream, self.flag); },
            "stream"_a, "From now on it is that of the operations of a stream.")
        .def(
            "set", [](const AbortFlagHandle& self) { self.flag->is_set.store(true, std::memory_order_release); },
            "Streams that waited for such an operation have no failure because of it, and those that wait go on.");
    m.def("take_failure", [](const StreamHandle& stream) { return as_object(scheduler().take_failure(*stream.stream)); }, "stream"_a,
          nb::sig("def take_failure(stream: Stream) -> typing.Any"), "The failure of a stream, which is reported now; None if there is none.");
    m.def(
        "failed_before",
        [](const EventHandle& event) -> uint64_t {
            if (Stream::unreported.load(std::memory_order_relaxed) == 0) return 0;
            const HeldMark mark{event.event->mark()};
            const FailurePtr failure = mark.shared ? scheduler().failure_before(*mark.shared) : nullptr;
            return failure ? failure->stream : 0;
        },
        "event"_a, "The stream that failed before the last record of an event, and may not have reported it; 0: none.");
    m.def("awaits_abort", [](const StreamHandle& stream) { return scheduler().awaits_abort(*stream.stream); }, "stream"_a,
          "Whether an operation that the program may still abort is why the stream has a failure.");
    m.def(
        "awaits_abort",
        [](const EventHandle& event) {
            const HeldMark mark{event.event->mark()};
            const FailurePtr failure = mark.shared ? scheduler().failure_before(*mark.shared) : nullptr;
            return failure && failure->awaits_abort();
        },
        "event"_a, "The same of the work before the last record of an event.");
    m.def(
        "unreported_failures",
        [] {
            nb::list failures;
            for (const FailurePtr& failure : scheduler().unreported()) failures.append(as_object(failure));
            return failures;
        },
        nb::sig("def unreported_failures() -> list[typing.Any]"), "The failures of streams that no call has reported; they stay unreported.");
}
