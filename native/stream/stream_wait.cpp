// Who waits, who is waited for, and who waits in vain.
#include <pthread.h>
#include <sys/eventfd.h>
#include <cerrno>

#include "stream/far_operation.h"
#include "stream/logged.h"
#include "stream/ready_descriptors.h"
#include "stream/scheduler.h"

namespace peerlane {

namespace {

constexpr auto kWaitPollPeriod = std::chrono::milliseconds(100);
constexpr auto kWaitSpin = std::chrono::microseconds(50);        // a futex takes 18 to 31 to wake somebody
constexpr auto kHopePeriod = std::chrono::milliseconds(250);     // another thread may be about to submit
constexpr std::chrono::milliseconds kRarest{4000};               // it looks at all that is queued
constexpr auto kHelp = std::chrono::milliseconds(2);              // other tasks of the loop wait meanwhile
constexpr unsigned kMostHops = 256;
constexpr unsigned kMostLooks = 16;                              // at streams that may have something small to do

}  // namespace

Deadline Deadline::in(double seconds) {
    constexpr double kLongest = 1e9;
    if (seconds < 0 || seconds > kLongest) return {};
    return {Clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9)), seconds >= kNetSeconds};
}

// Whom to run so that `stream` gets on: itself, or what it waits for.
Stream* Scheduler::find_help(Stream& stream) {
    Stream* at = &stream;
    for (unsigned hops = 0; at && hops < kMostHops; ++hops) {
        if (can_help(*at)) return at;
        if (at->park == Park::callback && is_mine(*at))
            throw Refusal{.why = Why::own_callback, .stream = {.id = stream.id}, .device = stream.device};
        at = at->park == Park::mark ? at->queue.front().mark->stream.get() : nullptr;
    }
    return nullptr;
}

Stream* Scheduler::choose(bool small_only) {
    const auto is_small = [](const Stream& stream) {
        const Op& op = stream.queue.front();
        if (!op.moves_bytes()) return true;
        return !stream.job && op.size <= kBrief && !op.is_batch();
    };
    if (able_.size() == 0) return nullptr;
    const uint64_t step = Turns::next_step();
    const Draws& draws = Turns::draws();
    if (draws.has_priorities) {
        const auto priority = [&](const Stream& stream) { return stream.fallen != 0 ? stream.fallen : draws.priority(~stream.id); };
        for (size_t i = able_.size(); i-- != 0;)
            if (!can_help(able_[i])) able_.remove(able_[i]);
        Stream* best = nullptr;
        for (size_t i = 0; i < able_.size(); ++i)
            if ((!small_only || is_small(able_[i])) && (!best || priority(able_[i]) > priority(*best))) best = &able_[i];
        if (const uint64_t change = best ? draws.change_at(step) : 0) {
            best->fallen = Draws::kFallen - std::min(change, Draws::kFallen - 1);
            for (size_t i = 0; i < able_.size(); ++i)
                if ((!small_only || is_small(able_[i])) && priority(able_[i]) > priority(*best)) best = &able_[i];
        }
        return best;
    }
    size_t at = random_() % able_.size();
    for (unsigned looks = kMostLooks; looks != 0 && able_.size() != 0;) {
        Stream& stream = able_[at %= able_.size()];
        if (!can_help(stream)) {
            able_.remove(stream);   // another one is in its place now
            continue;
        }
        if (!small_only || is_small(stream)) return &stream;
        ++at;
        --looks;
    }
    return nullptr;
}

Stream* Scheduler::find_able() {
    for (auto& [id, stream] : streams_)
        if (can_help(*stream)) return stream.get();
    return nullptr;
}

void Scheduler::pump(Lock& lock, unsigned steps, bool small_only) {
    for (; steps != 0; --steps) {
        Stream* stream = choose(small_only);
        if (!stream) return;
        run_slice(lock, *stream, {.steps = 1 + random_() % 8, .single = true});
    }
}

void Scheduler::sleep(Lock& lock, HostWaiter& waiter, HostWaiter*& list, Clock::time_point until) {
    const bool seeded = schedule() == Schedule::seeded;
    if (seeded) sleepers_.push_back(&waiter);   // this may throw
    waiter.woken.store(false, std::memory_order_relaxed);
    waiter.next = list;
    list = &waiter;
    lock.unlock();
    const auto stop = std::min(until, Clock::now() + kWaitSpin);
    while (!waiter.woken.load(std::memory_order_acquire) && Clock::now() < stop) help_far();
    if (!waiter.woken.load(std::memory_order_relaxed)) do_far_task(FarTask::rest);
    lock.lock();
    waiter.wake.wait_until(lock, until, [&] { return waiter.woken.load(std::memory_order_relaxed); });
    HostWaiter** link = &list;
    while (*link != &waiter) link = &(*link)->next;
    *link = waiter.next;
    if (seeded) std::erase(sleepers_, &waiter);
}

struct Scheduler::ListedHost {
    Scheduler& scheduler;
    HostWaiter& waiter;

    ListedHost(Scheduler& in, HostWaiter& of) : scheduler(in), waiter(of) {
        ++scheduler.waiting_;
        scheduler.note_call();
        scheduler.let_held_run();
    }
    ListedHost(const ListedHost&) = delete;
    void add() const {
        if (waiter.number != 0) return;
        waiter.thread = static_cast<uint64_t>(pthread_self());
        or_lose([this] {   // without memory: at the next look
            scheduler.hosts_.push_back(&waiter);
            waiter.number = scheduler.next_host_++;
        });
    }
    ~ListedHost() {
        --scheduler.waiting_;
        scheduler.note_call();
        if (waiter.number != 0) std::erase(scheduler.hosts_, &waiter);
    }
};

Outcome Scheduler::wait_until(Lock& lock, const std::function<bool()>& done, const std::function<Stream*()>& stream, HostWaiter*& list,
                              uint64_t target, Deadline deadline, Poll poll) {
    HostWaiter waiter;
    waiter.target = target;
    waiter.deadline = deadline.at;
    waiter.is_net = deadline.is_net;
    const ListedHost listed{*this, waiter};
    const auto start = Clock::now();
    auto next_poll = start + kWaitPollPeriod, next_look = start + kHopePeriod;
    auto hope_period = kHopePeriod;
    const bool in_turns = Turns::is_on() && Turns::is_participant();
    while (!done()) {
        if (waiter.refused != 0) throw Refusal{.why = Why::no_progress, .occasion = waiter.refused, .device = stream()->device};
        const auto now = Clock::now();
        if (now >= deadline.at) return Outcome::timed_out;
        if (now >= next_poll) {
            if (now >= next_look) refuse_if_hopeless(*stream());   // a circle says more than what the poll finds, where this thread was stopped
            next_poll = now + kWaitPollPeriod;
            listed.add();
            lock.unlock();
            bool stop;
            {
                const Turns::Suspended looks;
                stop = poll.ask && poll.ask(poll.context);
            }
            lock.lock();
            if (stop) return Outcome::interrupted;
            continue;
        }
        const auto until = std::min(deadline.at, next_poll);
        const StreamPtr at = stream()->shared_from_this();
        waiter.stream = at->id;
        const bool seeded = schedule() == Schedule::seeded;
        if (in_turns && !Turns::has_turn()) {
            take_turn(lock, Turns::await_turn, until);
            continue;
        }
        if (in_turns) look_at_lines();   // what others have recorded since the last turn
        Stream* help = seeded ? choose(false) : find_help(*at);
        if (!help && workers_ == 0) help = find_able();   // no thread was to be had, and whom it waits for is ready
        if (help && seeded)
            run_slice(lock, *help, {.steps = 1 + random_() % 8, .single = true});   // not by the clock, but by the seed
        else if (help)
            run_slice(lock, *help, {.at = until});
        if (help && in_turns) take_turn(lock, Turns::step, until);
        if (help) continue;
        if (seeded) find_help(*at);   // refuses a callback that would wait for itself
        if (!watching_ && (!deadlines_.empty() || parked_on_values_.first)) ensure_watch();
        if (at->closing && give_up_if_hopeless(*at)) continue;
        if (now >= next_look) {
            hope_period = std::min(2 * hope_period, kRarest);
            next_look = now + hope_period;
            refuse_if_hopeless(*at);
        }
        if (in_turns && !is_busy())
            take_turn(lock, Turns::blocked, until);
        else
            sleep(lock, waiter, list, until);
    }
    return Outcome::reached;
}

// A callback or another thread runs something: the turn stays here until that is over.
bool Scheduler::is_busy() const {
    return std::any_of(streams_.begin(), streams_.end(), [](const auto& each) {
        return each.second->active != 0 || each.second->park == Park::callback;
    });
}

void Scheduler::take_turn(Lock& lock, bool (*step)(uint64_t), Clock::time_point until) {
    lock.unlock();
    (void)step(static_cast<uint64_t>(until.time_since_epoch().count()));
    lock.lock();
}

bool Scheduler::wait_in_turns(const std::function<bool()>& is_over, Clock::time_point until) {
    Lock lock(mutex_);
    struct Listed {
        unsigned& waiting;
        ~Listed() { --waiting; }
    };
    ++waiting_;
    let_held_run();
    const Listed listed{waiting_};
    HostWaiter waiter;
    HostWaiter* none = nullptr;
    do {
        // In its turn alone: so what it finds there does not depend on time.
        if (!Turns::has_turn()) take_turn(lock, Turns::await_turn, until);
        if (!Turns::has_turn()) return false;
        if (is_over()) return true;
        look_at_lines();
        if (Stream* const help = choose(false)) {
            run_slice(lock, *help, {.steps = 1 + random_() % 8, .single = true});
            take_turn(lock, Turns::step, until);
        } else if (is_busy()) {
            sleep(lock, waiter, none, until);
        } else {
            take_turn(lock, Turns::blocked, until);
        }
    } while (Clock::now() < until);
    return false;
}

bool Scheduler::query(Stream& stream) {
    Heap::get().check_usable();
    if (Turns::is_on()) [[unlikely]] Turns::point();
    Lock lock(mutex_);
    const uint64_t target = stream.submitted.load(std::memory_order_relaxed);
    const auto over = [&] { return stream.completed.load(std::memory_order_relaxed) >= target; };
    if (over()) return true;
    if (Turns::is_participant()) look_at_lines();
    note_call();
    let_held_run();
    demand(stream, target);
    if (schedule() == Schedule::seeded) pump(lock, 1 + static_cast<unsigned>(random_() % 3), false);
    return over();
}

bool Scheduler::query(Mark& mark) {
    if (mark.state.load(std::memory_order_acquire) != Mark::pending) return true;
    Heap::get().check_usable();
    if (Turns::is_on()) [[unlikely]] Turns::point();
    Lock lock(mutex_);
    if (Turns::is_participant()) look_at_lines();
    note_call();
    let_held_run();
    if (mark.stream) demand(*mark.stream, mark.sequence);
    if (schedule() == Schedule::seeded) pump(lock, 1 + static_cast<unsigned>(random_() % 3), false);
    return mark.state.load(std::memory_order_acquire) != Mark::pending;
}

bool Scheduler::query_and_help(Mark& mark) {
    const auto is_over = [&] { return mark.state.load(std::memory_order_acquire) != Mark::pending; };
    if (is_over()) return true;
    Heap::get().check_usable();
    Lock lock(mutex_);
    if (mark.stream && can_help(*mark.stream)) run_slice(lock, *mark.stream, {.at = Clock::now()});
    return is_over();
}

namespace {

// The program's wait begins and ends in its turn.
struct InTurn {
    InTurn() {
        if (Turns::is_on()) [[unlikely]] Turns::point();
    }
    InTurn(const InTurn&) = delete;
    ~InTurn() {
        if (Turns::is_on()) [[unlikely]] Turns::regain();
    }
};

}  // namespace

bool Scheduler::help_loop() {
    Heap::get().check_usable();
    const struct Turn {   // not a step: else the ranks would never be found to wait all
        ~Turn() {
            if (Turns::is_on()) [[unlikely]] Turns::regain();
        }
    } own_turn;
    Lock lock(mutex_);
    note_call();
    let_held_run();
    const auto until = Clock::now() + kHelp;
    const bool in_turns = Turns::is_on() && Turns::is_participant();
    if (in_turns && !Turns::has_turn()) take_turn(lock, Turns::await_turn, until);
    if (in_turns) look_at_lines();
    const bool seeded = schedule() == Schedule::seeded;
    Stream* const help = seeded ? choose(false) : workers_ == 0 ? find_able() : nullptr;
    if (help) run_slice(lock, *help, {.at = until, .steps = seeded ? 1 + random_() % 8 : UINT64_MAX, .single = seeded});
    if (in_turns && (help || !is_busy())) take_turn(lock, help ? Turns::step : Turns::blocked, until);
    return help || in_turns;
}

Outcome Scheduler::synchronize(Stream& stream, Deadline deadline, Poll poll) {
    Heap::get().check_usable();
    const InTurn in_turn;
    Lock lock(mutex_);
    const StreamPtr held = stream.shared_from_this();
    const uint64_t target = stream.submitted.load(std::memory_order_relaxed);
    demand(stream, target);
    return wait_until(
        lock, [&] { return stream.completed.load(std::memory_order_relaxed) >= target; }, [&] { return &stream; },
        stream.waiters, target, deadline, poll);
}

Outcome Scheduler::make_room(Stream& stream, uint64_t most, Poll poll) {
    Lock lock(mutex_);
    const uint64_t submitted = stream.submitted.load(std::memory_order_relaxed);
    if (stream.park != Park::far || submitted - stream.completed.load(std::memory_order_relaxed) <= most) return Outcome::reached;
    const StreamPtr held = stream.shared_from_this();
    const uint64_t target = submitted - most / 2;
    return wait_until(
        lock, [&] { return stream.park != Park::far || stream.completed.load(std::memory_order_relaxed) >= target; },
        [&] { return &stream; }, stream.waiters, target, {}, poll);
}

Outcome Scheduler::synchronize(Mark& mark, Deadline deadline, Poll poll) {
    if (mark.state.load(std::memory_order_acquire) != Mark::pending) return Outcome::reached;
    Heap::get().check_usable();
    const InTurn in_turn;
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
    return stream.take();
}

bool Scheduler::awaits_abort(const Stream& stream) {
    Lock lock(mutex_);
    return stream.failure && stream.failure->awaits_abort();
}

FailurePtr Scheduler::failure_before(const Mark& mark) {
    Lock lock(mutex_);
    if (mark.failure) return mark.failure->is_aborted() ? nullptr : mark.failure;
    const auto stream = streams_.find(mark.stream_id);
    if (stream == streams_.end()) return nullptr;
    const FailurePtr& failure = stream->second->failure;
    return failure && failure->sequence <= mark.sequence && !failure->is_aborted() ? failure : nullptr;
}

// A poll that says stop ends it; whatever still cannot run then is left.
Outcome Scheduler::drain(Poll poll) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    let_held_run();
    demand_all();
    HostWaiter waiter;
    auto next_poll = Clock::now() + kWaitPollPeriod;
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
        next_poll = Clock::now() + kWaitPollPeriod;
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
    if (mark.fd < 0) throw Refusal{.why = Why::descriptors, .role = "event", .error = errno};
    if (log::is_read(log::kChecker)) ready_descriptors::add(mark.fd, mark.stream_id, mark.sequence);
    if (over) {
        log_evident(mark.stream_id, mark.sequence);
        return mark.fd;
    }
    if (schedule() == Schedule::seeded && !background_) {
        background_ = true;
        for (auto& [id, stream] : streams_) make_ready(*stream);
    }
    let_held_run();
    demand(*mark.stream, mark.sequence);
    return mark.fd;
}

std::vector<Waiting> Scheduler::waiting() {
    Lock lock(mutex_);
    std::vector<Waiting> waiting;
    for (auto& [id, stream] : streams_) {
        if (stream->queue.empty()) continue;
        const Op& op = stream->queue.front();
        Waiting entry{id, stream->head(), stream->submitted.load(std::memory_order_relaxed), stream->park, 0, 0,
                      stream->device, stream->queue.site(0)};
        if (stream->park == Park::mark) {
            entry.what = op.mark->stream_id;
            entry.record = op.mark->sequence;
        } else if (stream->park == Park::notify) {
            entry.what = op.notify->id;
        }
        waiting.push_back(entry);
    }
    return waiting;
}

std::vector<AwaitedWord> Scheduler::awaited_words() {
    Lock lock(mutex_);
    std::vector<AwaitedWord> words;
    for (const Stream* stream = parked_on_values_.first; stream; stream = stream->park_next) {
        const Op& op = stream->queue.front();
        const auto& wait = static_cast<const ValueWait&>(*op.extra);
        Refusal why{};
        uint64_t seen = 0;
        if (stream->has_deadline || look_at_word(op, why, &seen) != Word::other) continue;
        words.push_back({stream->id, stream->head(), ends_of(op).dst, seen, wait.value, wait.mask, op.width,
                         wait.compare, stream->queue.site(0)});
    }
    return words;
}

}  // namespace peerlane
