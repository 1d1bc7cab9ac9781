// Parked streams, and the doorbell's thread: it wakes them for records of other processes, looks at words of memory,
// ends waits at their deadlines, and has queued operations run while the program rests.
#include <unistd.h>

#include <thread>

#include "memory/fault_guard.h"
#include "log/threads.h"
#include "memory/threads.h"
#include "ranks/late_delivery.h"
#include "share/shared_signal.h"
#include "stream/scheduler.h"

namespace peerlane {

namespace {
constexpr uint64_t kLongestSleep = 1'000'000'000;   // where others may ring, or die before they do
constexpr uint64_t kForever = 3'600'000'000'000;
constexpr uint64_t kLateWake = 500'000'000;   // the machine stopped the process, or had no processor for it
constexpr uint64_t kBetweenPulses = 100'000'000;   // between two looks whether the others live
constexpr uint64_t kBetweenSteps = 1'000'000, kBetweenWatches = 20'000'000;
constexpr unsigned kStepsForOthers = 16;
constexpr uint64_t kFirstLook = 20'000, kSlowestLook = 8'000'000;   // ns between two looks at words of memory
}

void Scheduler::park(Stream& stream, Park park, uint64_t timeout_ns) {
    stream.park = park;
    const Op& op = stream.queue.front();
    if (stream.group && park != Park::phase) stream.group->held_up.add(stream);
    switch (park) {
        case Park::mark:
            op.mark->parked.add(stream);
            demand(*op.mark->stream, op.mark->sequence);
            break;
        case Park::notify:
            lines_of(op.notify->line).parked.add(stream);
            if (op.notify->shared() || op.notify->is_far || op.notify->abandoned.load(std::memory_order_relaxed)) count_shared_wait(stream);
            break;
        case Park::value:
            parked_on_values_.add(stream);
            break;
        case Park::phase:
            stream.group->parked.add(stream);
            demand_all();
            break;
        case Park::far:
            demand_all();
            return;
        default:
            return;
    }
    if (park == Park::notify || park == Park::value) {
        ++demanding_;
        demand_all();
        ensure_watch();
    }
    if (park == Park::notify) ring_before(now_ns() + kLongestSleep);
    if (park == Park::value) {
        look_ns_ = kFirstLook;
        ring_before(now_ns() + kFirstLook);
    }
    if (timeout_ns != 0) {
        if (std::exchange(stream.timed_head, stream.head()) != stream.head()) {
            const uint64_t now = now_ns();
            stream.timed_until = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
        }
        const uint64_t at = stream.timed_until;
        stream.deadline_entry.key() = at;
        stream.deadline = deadlines_.insert(std::move(stream.deadline_entry));
        stream.has_deadline = true;
        ensure_watch();
        ring_before(at);
    }
    if (stream.closing) give_up_if_hopeless(stream);
}

void Scheduler::unpark(Stream& stream) {
    if (stream.parked_in) stream.parked_in->remove(stream);
    if (stream.park == Park::notify || stream.park == Park::value) --demanding_;
    if (std::exchange(stream.has_deadline, false)) stream.deadline_entry = deadlines_.extract(stream.deadline);
    const Park park = std::exchange(stream.park, Park::none);
    if (stream.group) stream.group->held_up.remove(stream);
    ++hope_;
    if (park != Park::notify) return;
    if (std::exchange(stream.waits_shared, false)) --shared_waits_;
    SignalLine& line = stream.queue.front().notify->line;
    if (is_awaited(line)) return;
    line.word.fetch_and(~SignalLine::kWaiter, std::memory_order_acq_rel);   // records need not ring any more
    // Only this process waits for a line of its own bank.
    const Notify& notify = *stream.queue.front().notify;
    const SharedSignal* const bank = notify.shared();
    if (bank && bank->bank() != 0) notify.signal().word.fetch_and(~SignalLine::kWaiter, std::memory_order_acq_rel);
}

void Scheduler::count_shared_wait(Stream& stream) {
    if (std::exchange(stream.waits_shared, true)) return;
    ++shared_waits_;
    ensure_watch();
    ring_before(now_ns() + kBetweenPulses);
}

bool Scheduler::is_awaited(const SignalLine& line) {
    for (const Stream* stream = lines_of(line).parked.first; stream; stream = stream->park_next)
        if (&stream->queue.front().notify->line == &line) return true;
    return false;
}

void Scheduler::add_recorder(Stream& stream, Op& op) {
    Op*& first = lines_of(op.notify->line).recorders;
    ++hope_;
    op.recorder = &stream;
    op.previous = nullptr;
    op.next = first;
    if (first) first->previous = &op;
    first = &op;
}

void Scheduler::remove_recorder(const Op& op) {
    (op.previous ? op.previous->next : lines_of(op.notify->line).recorders) = op.next;
    if (op.next) op.next->previous = op.previous;
}

void Scheduler::wake_all(ParkList& parked) {
    while (Stream* stream = parked.first) {
        unpark(*stream);
        make_ready(*stream);
    }
}

// All that wait for the line look again; who is not served announces himself anew.
void Scheduler::wake_notify(SignalLine& line) {
    each_parked_on(line, [this](Stream& stream) {
        unpark(stream);
        make_ready(stream);
    });
}

// Without a thread waits go on all the same: who synchronizes asks again.
void Scheduler::ensure_watch() {
    if (watching_) return;
    try {
        watch_due_ = now_ns();
        log::own_thread([this] { watch(); }).detach();
        watching_ = true;
    } catch (const std::exception&) {
    }
}

void Scheduler::ring_before(uint64_t at) {
    if (at < watch_until_) wake_watch();
}

// Somebody may have cut the node's file: who sleeps there finds out by himself.
void Scheduler::wake_watch() {
    FaultGuard guard;
    (void)guarded(guard, [this] { doorbell().ring(); });
}

void Scheduler::attend() {
    Lock lock(mutex_);
    ensure_watch();
    wake_watch();
}

Doorbell& Scheduler::bell() {
    Heap::get().check_usable();
    Lock lock(mutex_);
    if (!bell_page_) bell_page_ = std::make_unique<SignalPage>(1);
    ensure_watch();
    return doorbell();
}

void Scheduler::wake_waiters(Notify& notify) {
    if (Turns::is_on()) [[unlikely]] Turns::signal();
    wake_notify(notify.line);
    if (SharedSignal* const with = notify.shared()) with->ring();
}

void Scheduler::watch() {
    begin_own_thread();
    Lock lock(mutex_);
    uint32_t heard = 0;
    uint64_t next_look = 0;   // a peer that dies between its record and the ring must not hang us
    while (true) {
        const std::shared_ptr<Ledger> node = bell_node_;   // its bell is there as long as it is
        uint32_t seen = 0;
        FaultGuard guard;
        if (!guarded(guard, [&] { seen = doorbell().rings.load(std::memory_order_acquire); })) {
            bell_node_ = nullptr;   // somebody cut the node's file
            continue;
        }
        Doorbell& bell = doorbell();
        const uint64_t now = now_ns();
        // A process that was stopped did not rest meanwhile.
        if (now > watch_due_ + kLateWake) moved_at_ = now;
        watch_due_ = now;
        const bool in_turns = Turns::is_on() && Turns::any_in_process();   // then its ranks look, each in its turn
        if (std::exchange(heard, seen) != seen || now >= next_look) {
            next_look = now + kLongestSleep;
            if (!in_turns) look_at_lines();
        }
        uint64_t span = std::min({look_at_held(), look_at_values(), look_at_rest(lock), bell_node_ || demanding_ != 0 ? kLongestSleep : kForever});
        if (shared_waits_ != 0) {
            fail_those_lost(lock);
            span = std::min(span, kBetweenPulses);
        }
        if (in_turns) {
            for (const auto& each : Turns::of_process()) each->look_at_clock();
            span = std::min(span, kBetweenWatches);
        }
        if (((bell_node_ && !in_turns) || at_rest_) && schedule() == Schedule::seeded) {
            // Other processes, or a program that looks at its memory, may wait for what nobody in this one asks for.
            const bool has_work = choose(false) != nullptr;
            if (has_work) pump(lock, kStepsForOthers, false);
            if (!has_work && at_rest_) at_rest_ = is_any_queued();
            if ((bell_node_ && !in_turns) || at_rest_) span = std::min(span, !has_work ? kBetweenWatches : at_rest_ ? 0 : kBetweenSteps);
        }
        if (Undelivered::is_any_attended()) {
            if (schedule() == Schedule::eager || now >= moved_at_ + kRest) {
                lock.unlock();
                Undelivered::deliver_all_if_idle(kRest);
                lock.lock();
            }
            span = std::min(span, kBetweenPulses);
        }
        while (!deadlines_.empty()) {
            const auto [at, stream] = *deadlines_.begin();
            if (at > now) {
                span = std::min(span, at - now);
                break;
            }
            expire(lock, *stream);
        }
        watch_until_ = watch_due_ = now + span;
        lock.unlock();
        bell.sleep(seen, span);
        lock.lock();
        if (const uint64_t woken = now_ns(); woken < watch_due_) watch_due_ = woken;
        watch_until_ = UINT64_MAX;
    }
}

// Waits that only processes which have ended could have satisfied.
void Scheduler::fail_those_lost(Lock& lock) {
    const uint64_t now = now_ns();
    if (now < next_pulse_) return;
    next_pulse_ = now + kBetweenPulses;
    std::vector<std::pair<StreamPtr, uint64_t>> lost;
    for (Lines& lines : lines_)
        for (Stream* stream = lines.parked.first; stream; stream = stream->park_next) {
            Notify& notify = *stream->queue.front().notify;
            if (notify.members && notify.lost_to.load(std::memory_order_relaxed) == 0)
                if (const uint64_t dead = notify.members->lost()) forsake_locked(notify, dead);
            const bool ends_locally = notify.is_local() && notify.abandoned.load(std::memory_order_relaxed);
            const uint64_t lost_pid = notify.lost_to.load(std::memory_order_relaxed);
            const uint64_t dead = notify.shared() ? notify.shared()->lost_to(notify.index())
                                  : !ends_locally ? 0
                                  : lost_pid != 0 ? lost_pid
                                                  : static_cast<uint64_t>(getpid());
            // Unless this process will record it itself; without memory: next time.
            if (dead != 0 && !notify.is_recorded() && is_hopeless(*stream, true))
                or_lose([&] { lost.emplace_back(stream->shared_from_this(), dead); });
        }
    for (auto& [stream, dead] : lost) fail_parked(lock, *stream, {.why = Why::waits_for_lost, .pid = dead, .device = stream->device});
}

void Scheduler::fail_parked(Lock& lock, Stream& stream, const Refusal& refusal) {
    const Op& op = stream.queue.front();
    unpark(stream);
    fail(stream, op, refusal);
    finish_head(lock, stream);
    make_ready(stream);
}

void Scheduler::look_at_lines() {
    for (Lines& lines : lines_)
        for (Stream* stream = lines.parked.first; stream;) {
            Stream* const next = stream->park_next;
            Notify& notify = *stream->queue.front().notify;
            // The ring has reset this process's announcement of a waiter, for all of its waits.
            if (notify.shared() ? notify.announce() : notify.is_recorded()) {
                unpark(*stream);
                make_ready(*stream);
            }
            stream = next;
        }
}

Word look_at_word(const Op& op, Refusal& why, uint64_t* seen) {
    const auto& wanted = static_cast<const ValueWait&>(*op.extra);
    uint64_t word = 0;
    FaultGuard guard;
    const bool wide = op.width == 8;
    if (!op.dst_extent) rearm_fault_handlers();
    try {
        Heap::get().check_leases(op.dst_range(), {});
    } catch (const Refusal& refusal) {
        why = refusal;
        return Word::gone;
    }
    const bool is_there = guarded(guard, [&] {
        word = wide ? std::atomic_ref(*reinterpret_cast<uint64_t*>(op.dst)).load(std::memory_order_acquire)
                    : std::atomic_ref(*reinterpret_cast<uint32_t*>(op.dst)).load(std::memory_order_acquire);
    });
    if (is_there && seen) *seen = word;
    if (is_there) return wanted.is_satisfied(word, op.width) ? Word::as_wanted : Word::other;
    // Memory that is pinned is there: without a page it does not hold anything yet.
    if (op.dst_extent) return Word::other;
    const Side side = side_at("address", op.dst, op.size);
    why = explain_fault(guard, &side, 1);
    return Word::gone;
}

// A program that never asks has other means, and waits for each such operation: the next ones are held back for less.
uint64_t Scheduler::look_at_held() {
    if (held_until_ == UINT64_MAX) return kForever;
    const uint64_t now = now_ns();
    if (now < held_until_) return held_until_ - now;
    hold_ns_ = std::max(hold_ns_ / 2, kShortestHold);
    let_held_run();
    return kForever;
}

// Nobody rings for plain memory: look, less and less often while nothing changes.
uint64_t Scheduler::look_at_values() {
    if (!parked_on_values_.first) return kForever;
    bool changed = false;
    for (Stream* stream = parked_on_values_.first; stream;) {
        Stream* const next = stream->park_next;
        Refusal why{};
        if (look_at_word(stream->queue.front(), why) != Word::other) {
            changed = true;
            unpark(*stream);
            make_ready(*stream);   // it looks again
        }
        stream = next;
    }
    look_ns_ = changed ? kFirstLook : std::min(look_ns_ * 2, kSlowestLook);
    return look_ns_;
}

bool Scheduler::is_any_queued() const {
    return std::any_of(streams_.begin(), streams_.end(), [](const auto& each) { return !each.second->is_idle(); });
}

// A program that only looks at its memory, or sleeps, asks for nothing, and the bytes must come all the same.
uint64_t Scheduler::look_at_rest(Lock& lock) {
    if (schedule() == Schedule::eager || at_rest_) return kForever;
    const uint64_t now = now_ns();
    if (now > watch_due_ + kLateWake) moved_at_ = now;
    if (now < moved_at_ + kRest) return moved_at_ + kRest - now;
    if (!is_any_queued()) return kForever;
    bool runs = std::any_of(streams_.begin(), streams_.end(), [](const auto& each) { return each.second->active != 0; });
    if (Turns::is_on() && Turns::any_in_process()) {
        runs |= Turns::process_awaits_turn();
        if (!runs && waiting_ == 0) Turns::mark(Turns::rested);
    }
    if (runs || (waiting_ != 0 && schedule() == Schedule::seeded)) {   // who waits there runs all that can run
        moved_at_ = now;
        return kRest;
    }
    at_rest_ = true;
    let_held_run();
    demand_all();
    while (Stream* able = schedule() == Schedule::lazy && workers_ == 0 ? find_able() : nullptr)   // no thread was to be had
        run_slice(lock, *able, {.at = Clock::now() + std::chrono::milliseconds(2)});
    return kForever;
}

void Scheduler::expire(Lock& lock, Stream& stream) {
    const StreamPtr held = stream.shared_from_this();
    const Op& op = stream.queue.front();
    if (stream.park == Park::notify && op.notify->shared()) {   // it may have come from who has ended, unseen
        (void)op.notify->shared()->others_live(op.notify->index());
        if (op.notify->is_recorded()) {
            unpark(stream);
            make_ready(stream);
            return;
        }
    }
    const uint64_t span = op.kind == OpKind::wait_value ? static_cast<const ValueWait*>(op.extra)->timeout_ns : op.timeout_ns;
    fail_parked(lock, stream, {.why = Why::wait_timeout, .timeout_ns = span, .device = stream.device});
}

}  // namespace peerlane
