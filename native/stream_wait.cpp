// Who waits, who is waited for, and who waits in vain.
#include <sys/eventfd.h>
#include <cerrno>

#include "scheduler.h"

namespace peerlane {

namespace {

constexpr auto kPollPeriod = std::chrono::milliseconds(100);
constexpr auto kSpin = std::chrono::microseconds(50);            // a futex takes 18 to 31 to wake somebody
constexpr auto kHopePeriod = std::chrono::milliseconds(250);     // another thread may be about to submit
constexpr unsigned kMostHops = 256;

}  // namespace

Deadline Deadline::in(double seconds) {
    constexpr double kLongest = 1e9;
    if (seconds < 0 || seconds > kLongest) return {};
    return {Clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9))};
}

// Whom to run so that `stream` gets on: itself, or what it waits for.
Stream* Scheduler::find_help(Stream& stream) {
    Stream* at = &stream;
    for (unsigned hops = 0; at && hops < kMostHops; ++hops) {
        if (can_help(*at)) return at;
        if (at->park == Park::callback && at->callback_thread == std::this_thread::get_id())
            throw Refusal{.why = Why::own_callback, .id = stream.id, .device = stream.device};
        at = at->park == Park::mark ? at->queue.front().mark->stream.get() : nullptr;
    }
    return nullptr;
}

Stream* Scheduler::choose(bool small_only) {
    std::vector<Stream*> able;
    for (auto& [id, stream] : streams_) {
        if (!can_help(*stream)) continue;
        if (small_only && (stream->job || stream->queue.front().size > kBrief ||
                           stream->queue.front().kind == OpKind::batch ||
                           stream->queue.front().kind == OpKind::descriptor))
            continue;
        able.push_back(stream.get());
    }
    return able.empty() ? nullptr : able[random_() % able.size()];
}

void Scheduler::pump(Lock& lock, unsigned steps, bool small_only) {
    for (; steps != 0; --steps) {
        Stream* stream = choose(small_only);
        if (!stream) return;
        run_slice(lock, *stream, {.steps = 1 + random_() % 8, .single = true});
    }
}

void Scheduler::sleep(Lock& lock, HostWaiter& waiter, HostWaiter*& list, Clock::time_point until) {
    waiter.woken.store(false, std::memory_order_relaxed);
    waiter.next = list;
    list = &waiter;
    const bool seeded = schedule() == Schedule::seeded;
    if (seeded) sleepers_.push_back(&waiter);
    lock.unlock();
    const auto stop = std::min(until, Clock::now() + kSpin);
    while (!waiter.woken.load(std::memory_order_acquire) && Clock::now() < stop) {
    }
    lock.lock();
    waiter.wake.wait_until(lock, until, [&] { return waiter.woken.load(std::memory_order_relaxed); });
    HostWaiter** place = &list;
    while (*place != &waiter) place = &(*place)->next;
    *place = waiter.next;
    if (seeded) std::erase(sleepers_, &waiter);
}

template <class Done>
Outcome Scheduler::wait_until(Lock& lock, const Done& done, const std::function<Stream*()>& stream, HostWaiter*& list,
                              uint64_t target, Deadline deadline, Poll poll) {
    HostWaiter waiter;
    waiter.target = target;
    const auto start = Clock::now();
    auto next_poll = start + kPollPeriod, next_look = start + kHopePeriod;
    while (!done()) {
        const auto now = Clock::now();
        if (now >= deadline.at) return Outcome::timed_out;
        if (now >= next_poll) {
            next_poll = now + kPollPeriod;
            lock.unlock();
            const bool stop = poll.ask && poll.ask(poll.context);
            lock.lock();
            if (stop) return Outcome::interrupted;
            continue;
        }
        const auto until = std::min(deadline.at, next_poll);
        const StreamPtr at = stream()->shared_from_this();
        Stream* const help = schedule() == Schedule::seeded ? choose(false) : find_help(*at);
        if (help) {
            const bool seeded = schedule() == Schedule::seeded;
            run_slice(lock, *help, {.at = until, .steps = seeded ? 1 + random_() % 8 : UINT64_MAX, .single = seeded});
            continue;
        }
        if (schedule() == Schedule::seeded) find_help(*at);   // refuses a callback that would wait for itself
        if (at->closing && give_up_if_hopeless(*at)) continue;
        if (now >= next_look) {
            next_look = now + kHopePeriod;
            refuse_if_hopeless(*at);
        }
        sleep(lock, waiter, list, until);
    }
    return Outcome::reached;
}

bool Scheduler::query(Stream& stream) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    const uint64_t target = stream.submitted.load(std::memory_order_relaxed);
    const auto over = [&] { return stream.completed.load(std::memory_order_relaxed) >= target; };
    if (over()) return true;
    demand(stream, target);
    if (schedule() == Schedule::seeded) pump(lock, 1 + static_cast<unsigned>(random_() % 3), false);
    return over();
}

bool Scheduler::query(Mark& mark) {
    if (mark.state.load(std::memory_order_acquire) != Mark::pending) return true;
    Heap::get().check_usable();
    Lock lock(mutex_);
    if (mark.stream) demand(*mark.stream, mark.sequence);
    if (schedule() == Schedule::seeded) pump(lock, 1 + static_cast<unsigned>(random_() % 3), false);
    return mark.state.load(std::memory_order_acquire) != Mark::pending;
}

Outcome Scheduler::synchronize(Stream& stream, Deadline deadline, Poll poll) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    const StreamPtr held = stream.shared_from_this();
    const uint64_t target = stream.submitted.load(std::memory_order_relaxed);
    demand(stream, target);
    return wait_until(
        lock, [&] { return stream.completed.load(std::memory_order_relaxed) >= target; }, [&] { return &stream; },
        stream.waiters, target, deadline, poll);
}

Outcome Scheduler::synchronize(Mark& mark, Deadline deadline, Poll poll) {
    if (mark.state.load(std::memory_order_acquire) != Mark::pending) return Outcome::reached;
    Heap::get().check_usable();
    Lock lock(mutex_);
    if (mark.stream) demand(*mark.stream, mark.sequence);
    return wait_until(
        lock, [&] { return mark.state.load(std::memory_order_relaxed) != Mark::pending; },
        [&] { return mark.stream.get(); }, mark.waiters, 0, deadline, poll);
}

FailurePtr Scheduler::take_failure(Stream& stream) {
    Lock lock(mutex_);
    stream.cause_until = std::min(stream.cause_until, stream.submitted.load(std::memory_order_relaxed));
    if (stream.cause_until <= stream.completed.load(std::memory_order_relaxed)) stream.cause = nullptr;
    return std::exchange(stream.failure, nullptr);
}

namespace {

bool writes(const Op& op, const Extent* extent) {
    switch (op.kind) {
        case OpKind::copy:
        case OpKind::copy_2d:
        case OpKind::fill:
            return op.dst_extent == extent;
        case OpKind::batch: {
            const auto& pieces = static_cast<const Batch&>(*op.extra).pieces;
            const char* const host = Heap::get().space().shadow(extent->offset);
            return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
                return piece.dst < host + extent->size && piece.dst + piece.size > host;
            });
        }
        default:
            return false;
    }
}

}  // namespace

Outcome Scheduler::settle_writes(const Extent* extent, Poll poll) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    struct Writer {
        StreamPtr stream;
        uint64_t last;
        bool is_list;
    };
    std::vector<Writer> writers;
    for (auto& [id, stream] : streams_) {
        uint64_t last = 0, last_list = 0;
        stream->queue.each([&](uint64_t i, const Op& op) {
            if (op.kind == OpKind::descriptor) last_list = stream->head() + i;
            if (writes(op, extent)) last = stream->head() + i;
        });
        if (last != 0) writers.push_back({stream, last, false});
        if (last_list > last) writers.push_back({stream, last_list, true});
    }
    for (auto& [stream, last, is_list] : writers) {
        demand(*stream, last);
        const auto over = [&] { return stream->completed.load(std::memory_order_relaxed) >= last; };
        const auto check = [&] {
            std::vector<Stream*> path;
            std::map<Stream*, bool> known;
            if (over() || stream->park == Park::none || !is_hopeless(*stream, true, path, known)) return over();
            if (is_list) return true;
            throw Refusal{.why = Why::pending_writes, .size = last, .id = stream->id, .device = stream->device};
        };
        try {
            const Outcome outcome =
                wait_until(lock, check, [&] { return stream.get(); }, stream->waiters, last, {}, poll);
            if (outcome != Outcome::reached) return outcome;
        } catch (const Refusal& refusal) {
            if (!is_list || refusal.why != Why::own_callback) throw;
        }
    }
    return Outcome::reached;
}

// A poll that says stop ends it; whatever still cannot run then is left.
Outcome Scheduler::drain(Poll poll) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    demand_all();
    HostWaiter waiter;
    auto next_poll = Clock::now() + kPollPeriod;
    while (true) {
        Stream* able = nullptr;
        Stream* busy = nullptr;
        for (auto& [id, stream] : streams_) {
            if (can_help(*stream)) able = stream.get();
            if (stream->active != 0) busy = stream.get();
        }
        if (able) {
            run_slice(lock, *able, {.at = next_poll});
        } else if (busy) {
            const StreamPtr held = busy->shared_from_this();
            waiter.target = busy->head();
            sleep(lock, waiter, busy->waiters, next_poll);
        } else {
            return Outcome::reached;
        }
        if (Clock::now() < next_poll) continue;
        next_poll = Clock::now() + kPollPeriod;
        lock.unlock();
        const bool stop = poll.ask && poll.ask(poll.context);
        lock.lock();
        if (stop) return Outcome::interrupted;
    }
}

int Scheduler::event_fd(Mark& mark) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    if (mark.fd >= 0) return mark.fd;
    const bool over = mark.state.load(std::memory_order_acquire) != Mark::pending;
    mark.fd = eventfd(over ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mark.fd < 0) throw Refusal{.why = Why::descriptors, .error = errno};
    if (over) return mark.fd;
    if (schedule() == Schedule::seeded && !background_) {
        background_ = true;
        for (auto& [id, stream] : streams_) make_ready(*stream);
    }
    demand(*mark.stream, mark.sequence);
    return mark.fd;
}

Outcome Scheduler::close(Stream& stream, bool wait, Poll poll) {
    if (Heap::get().is_forked()) return Outcome::reached;
    Lock lock(mutex_);
    const StreamPtr held = stream.shared_from_this();
    if (stream.closed) return Outcome::reached;
    stream.closing = true;
    const uint64_t target = stream.submitted.load(std::memory_order_relaxed);
    if (stream.is_idle()) {
        complete(stream, 0, 0);
        return Outcome::reached;
    }
    demand(stream, target);
    const bool own = stream.park == Park::callback && stream.callback_thread == std::this_thread::get_id();
    if (own || !wait) {
        give_up_if_hopeless(stream);
        make_ready(stream);
        return Outcome::reached;
    }
    return wait_until(lock, [&] { return stream.closed; }, [&] { return &stream; }, stream.waiters, target, {}, poll);
}

void Scheduler::abort(Stream& stream, bool close) {
    if (Heap::get().is_forked()) return;
    Lock lock(mutex_);
    const StreamPtr held = stream.shared_from_this();
    if (stream.closed) return;
    if (close) stream.closing = true;
    if (stream.is_idle()) {
        if (close) complete(stream, 0, 0);
        return;
    }
    give_up(lock, stream);
    while (!stream.queue.empty() && can_run(stream)) cancel_head(lock, stream);
}

// What is queued is cancelled when its turn comes; a running job ends at its next chunk.
void Scheduler::give_up(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    if (!stream.cause) {
        auto failure = std::make_shared<Failure>();
        *failure = {.refusal = {.why = Why::cancelled, .device = stream.device}, .stream = stream.id,
                    .sequence = stream.head(), .kind = op.kind};
        if (!stream.failure) stream.failure = failure;
        stream.cause = std::move(failure);
    }
    stream.cause_until = stream.submitted.load(std::memory_order_relaxed);
    stream.demanded = std::max(stream.demanded, stream.cause_until);
    if (stream.park != Park::none && stream.park != Park::callback) unpark(stream);
    if (stream.job) {
        stream.job->fail({.why = Why::cancelled, .device = stream.device});
        if (stream.job->workers == 0) finish_job(lock, stream);
    }
    make_ready(stream);
}

void Scheduler::close_device(uint32_t device) {
    std::vector<StreamPtr> closing;
    {
        Lock lock(mutex_);
        for (auto& [id, stream] : streams_)
            if (stream->device == device) closing.push_back(stream);
    }
    for (const StreamPtr& stream : closing) abort(*stream, true);
}

bool Scheduler::give_up_if_hopeless(Stream& stream) {
    std::vector<Stream*> path;
    std::map<Stream*, bool> known;
    if (stream.park == Park::none || !is_hopeless(stream, true, path, known)) return false;
    auto failure = std::make_shared<Failure>();
    *failure = {.refusal = {.why = Why::cancelled, .device = stream.device}, .stream = stream.id,
                .sequence = stream.head(), .kind = stream.queue.front().kind};
    if (!stream.failure) stream.failure = failure;
    stream.cause = std::move(failure);
    stream.cause_until = UINT64_MAX;
    unpark(stream);
    make_ready(stream);
    return true;
}

void Scheduler::refuse_if_hopeless(Stream& stream) {
    std::vector<Stream*> path;
    std::map<Stream*, bool> known;
    if (stream.park == Park::none || !is_hopeless(stream, false, path, known)) return;
    throw Refusal{.why = Why::deadlock, .size = path.size(), .id = stream.id, .device = stream.device};
}

bool Scheduler::is_hopeless(Stream& stream, bool alone, std::vector<Stream*>& path, std::map<Stream*, bool>& known) {
    const auto found = known.find(&stream);
    if (found != known.end()) return found->second;   // on the path: a circle
    known[&stream] = true;
    path.push_back(&stream);
    bool hopeless = false;
    if (stream.park == Park::mark) {
        Stream* next = stream.queue.front().mark->stream.get();
        hopeless = next && is_hopeless(*next, alone, path, known);
    } else if (stream.park == Park::notify) {
        const Notify& notify = *stream.queue.front().notify;
        bool any = false;
        hopeless = notify.is_local() || alone;
        for (auto& [id, other] : streams_) {
            bool records = false;
            other->queue.each([&](uint64_t, const Op& op) {
                records |= op.kind == OpKind::notify && &op.notify->line == &notify.line;
            });
            if (!records) continue;
            any = true;
            hopeless = hopeless && is_hopeless(*other, alone, path, known);
        }
        hopeless = hopeless && (any || alone);
    } else if (stream.park == Park::callback) {
        // It returns if nobody waits for it; only the thread that runs it must not.
        hopeless = !alone && stream.callback_thread == std::this_thread::get_id();
    }
    known[&stream] = hopeless;
    return hopeless;
}

void Scheduler::park(Stream& stream, Park park, uint64_t timeout_ns) {
    stream.park = park;
    stream.ticket = next_ticket_++;
    const auto entry = std::make_pair(stream.shared_from_this(), stream.ticket);
    const Op& op = stream.queue.front();
    switch (park) {
        case Park::mark:
            op.mark->parked.push_back(entry);
            if (op.mark->stream) demand(*op.mark->stream, op.mark->sequence);
            break;
        case Park::notify:
            parked_on_lines_.emplace(&op.notify->line, entry);
            ++demanding_;
            demand_all();
            break;
        case Park::phase:
            stream.group->parked.push_back(entry);
            demand_all();
            break;
        default:
            return;
    }
    if (timeout_ns != 0) {
        stream.deadline = static_cast<uint64_t>(Clock::now().time_since_epoch().count()) + timeout_ns;
        deadlines_.emplace(stream.deadline, entry);
    }
    if (timeout_ns != 0 || park == Park::notify) ensure_watch();
    if (stream.closing) give_up_if_hopeless(stream);
}

void Scheduler::unpark(Stream& stream) {
    const auto forget = [&](auto& table, const auto& key) {
        auto [entry, last] = table.equal_range(key);
        while (entry != last && entry->second.second != stream.ticket) ++entry;
        if (entry != last) table.erase(entry);
    };
    if (stream.park == Park::notify) {
        --demanding_;
        forget(parked_on_lines_, &stream.queue.front().notify->line);
    }
    if (stream.deadline != 0) forget(deadlines_, stream.deadline);
    stream.deadline = 0;
    stream.park = Park::none;
    stream.ticket = 0;
}

std::vector<Waiting> Scheduler::waiting() {
    Lock lock(mutex_);
    std::vector<Waiting> found;
    for (auto& [id, stream] : streams_) {
        if (stream->queue.empty()) continue;
        const Op& op = stream->queue.front();
        Waiting entry{id, stream->head(), stream->submitted.load(std::memory_order_relaxed), stream->park, 0, 0,
                      stream->device};
        if (stream->park == Park::mark) {
            entry.what = op.mark->stream_id;
            entry.record = op.mark->sequence;
        } else if (stream->park == Park::notify) {
            entry.what = op.notify->id;
        }
        found.push_back(entry);
    }
    return found;
}

void Scheduler::wake_all(std::vector<std::pair<StreamPtr, uint64_t>>& parked) {
    for (auto& [stream, ticket] : std::exchange(parked, {}))
        if (stream->ticket == ticket) {
            unpark(*stream);
            make_ready(*stream);
        }
}

}  // namespace peerlane
