// What runs: slices of a stream, small operations in a row, and what the others begin with.  Runs in threads that
// cannot tell anybody of an exception: none is thrown.
#include <cstring>
#include <sched.h>
#include <unistd.h>

#include "copy/kernels.h"
#include "log/outside.h"
#include "memory/fault_guard.h"
#include "stream/descriptor.h"
#include "stream/far_operation.h"
#include "stream/logged.h"
#include "stream/scheduler.h"

namespace peerlane {

namespace {

constexpr uint64_t kSmall = uint64_t{64} << 10;
constexpr uint64_t kWakeNs = 50'000;   // what it takes to wake a thread of another process, twice
constexpr uint64_t kMostInARow = 64, kMostBytesInARow = kChunk;

bool is_small(const Op& op) {
    return op.kind == OpKind::free || op.kind == OpKind::write_value ||
           ((op.kind == OpKind::copy || op.kind == OpKind::fill || op.kind == OpKind::reduce) && op.size <= kSmall);
}

constexpr uint64_t kWord = 8, kRecord = 64;

// Whether the checker's log has it, and the host can poll what it writes: the host can read the bytes at their address.
bool is_polled(const Op& op) {
    if (op.logged != Logged::submitted || op.size > kRecord || (op.kind != OpKind::write_value && op.kind != OpKind::copy && op.kind != OpKind::fill)) return false;
    return !op.dst_extent || Heap::get().address_of(op.dst_extent) == reinterpret_cast<uint64_t>(Heap::get().host_of(op.dst_extent, 0));
}

void store_word(char* at, unsigned width, uint64_t value) {
    if (width == 8)
        std::atomic_ref(*reinterpret_cast<uint64_t*>(at)).store(value, std::memory_order_release);
    else
        std::atomic_ref(*reinterpret_cast<uint32_t*>(at)).store(static_cast<uint32_t>(value), std::memory_order_release);
}

// True: done.  Nothing is released.
bool run_small_op(const Op& op, Refusal& why) {
    try {
        if (op.kind == OpKind::free) {
            const log::Quiet submitted;   // the log has it already
            Heap::get().retire(op.dst_extent, op.value);
            return true;
        }
        Heap::get().check_leases(op.dst_range(), op.src_range());   // they may have ended since it was submitted
        FaultGuard guard;
        if (!op.dst_extent || ((op.kind == OpKind::copy || op.kind == OpKind::reduce) && !op.src_extent)) rearm_fault_handlers();
        if (op.kind == OpKind::write_value) {
            if (guarded(guard, [&] { store_word(op.dst, op.width, op.value); })) return true;
            const Side side = side_at("dst", op.dst, op.size);
            why = explain_fault(guard, &side, 1);
            return false;
        }
        if (op.kind == OpKind::fill) {
            const Task task = plan_fill(op.dst, op.value, op.width, op.size);
            if (guarded(guard, [&] { task.step(0); })) return true;
            const Side side = side_at("dst", op.dst, op.size);
            why = explain_fault(guard, &side, 1);
            return false;
        }
        const bool staged = needs_staging(op.dst_range(), op.src_range(), op.direct);
        if (staged) prepare_staging();
        if (staged || op.kind == OpKind::reduce) {
            const Task task = plan_move(op, staged);
            if (guarded(guard, [&] { task.run(); })) return true;
        } else {
            char* const to = op.dst;
            const char* const from = op.src;
            const uint64_t size = op.size;
            if (guarded(guard, [=] { memmove(to, from, size); })) return true;
        }
        const Side sides[] = {side_at("dst", op.dst, op.size), side_at("src", op.src, op.size)};
        why = explain_fault(guard, sides, 2);
    } catch (const Refusal& refusal) {
        why = refusal;
    } catch (const std::bad_alloc&) {
        why = {.why = Why::system_memory, .size = kChunk};
    }
    return false;
}

void unpin(const Op& op) {
    if (op.kind == OpKind::free) return;   // its extent is not pinned: it is what ends
    if (op.dst_extent) Heap::get().unpin(op.dst_range());
    if (op.src_extent) Heap::get().unpin(op.src_range());
}

}  // namespace

bool Scheduler::run_slice(Lock& lock, Stream& stream, Leave leave) {
    const StreamPtr held = stream.shared_from_this();
    bool ran = false;
    while (true) {
        if (stream.job) {
            if (!stream.job->may_join() || !join_job(lock, stream, leave)) break;
        } else if (!can_run(stream) || !start_head(lock, stream, leave)) {
            break;
        }
        ran = true;
        if (leave.single) break;
        if (Clock::now() >= leave.at && (!leave.others || leave.others->load(std::memory_order_relaxed) != 0)) break;
    }
    if (ran && schedule() != Schedule::eager) moved_at_ = now_ns();
    make_ready(stream);
    if (std::exchange(has_posted_, false)) {   // who sends takes this lock when it is over
        lock.unlock();
        do_far_task(FarTask::send);
        lock.lock();
    }
    return ran;
}

// True when the head is over or has become a job; false when the stream was parked.
bool Scheduler::start_head(Lock& lock, Stream& stream, Leave& leave) {
    Op& op = stream.queue.front();
    if (stream.cause) {   // not held up by a barrier
        cancel_head(lock, stream);
        return true;
    }
    if (stream.group && !stream.group->may_run(op.phase)) {
        park(stream, Park::phase, 0);
        return stream.park == Park::none;
    }
    if (sources_.is_any_late()) [[unlikely]] sources_.starting(stream.id, stream.head());
    if (is_small(op)) {
        run_small(lock, stream, leave);
        return true;
    }
    if (op.moves_bytes()) {
        open_job(lock, stream);
        return true;
    }
    // A wait starts when it is over: while it is parked, each look would log another start.
    const bool waits = op.kind == OpKind::wait || op.kind == OpKind::wait_notify || op.kind == OpKind::wait_value ||
                       op.kind == OpKind::far || op.kind == OpKind::stepwise;
    const bool observed = log::is_read(log::kObserver);
    if (observed && !waits && op.kind != OpKind::notify) [[unlikely]] log_started(stream, stream.head(), op);
    switch (op.kind) {
        case OpKind::record:
            // Who waits for the record relies on what the program may abort, though this stream goes on.
            settle(*op.mark, stream.failure && stream.failure->abort_flag && !stream.failure->is_aborted() ? stream.failure : nullptr);
            break;
        case OpKind::wait:
            start_wait(stream, op);
            break;
        case OpKind::notify:
            start_notify(stream, op);
            break;
        case OpKind::wait_notify:
            start_wait_notify(stream, op);
            break;
        case OpKind::wait_value:
            start_wait_value(stream, op);
            break;
        case OpKind::far:
            start_far(stream, op);
            break;
        case OpKind::stepwise:
            start_stepwise(lock, stream, op, leave);
            if (stream.cause && stream.cause_until >= stream.head()) return true;   // it was cancelled, or has failed
            break;
        default:
            try {
                op.callbacks->push({op.value, stream.shared_from_this(), op.call});
                park(stream, Park::callback, 0);   // nobody begins it before this lock is released
            } catch (const std::bad_alloc&) {
                fail(stream, op, {.why = Why::system_memory});
                if (!op.call) release_token(op.value);
            }
    }
    if (stream.park != Park::none) return false;
    if (stream.cause && stream.closing) return true;   // it was aborted while it was parked: its queue is cancelled in order
    if (observed && waits) [[unlikely]] log_started(stream, stream.head(), op);
    finish_head(lock, stream);
    return true;
}

void Scheduler::run_at_once(Stream& stream, const Op& op, uint64_t site) {
    const uint64_t sequence = stream.submitted.load(std::memory_order_relaxed);
    if (log::is_read(log::kObserver)) [[unlikely]] log_started(stream, sequence, op);
    const bool timed = log::is_read(log::kTrace);
    const uint64_t start = timed ? now_ns() : 0;
    Refusal why{};
    if (is_polled(op)) [[unlikely]] note_polled(stream, op, sequence);
    const MovesBytes not_the_program;
    if (!run_small_op(op, why)) fail(stream, op, why, sequence, site, ends_of(op));
    unpin(op);
    if (timed) [[unlikely]] log_ended(stream, sequence, op, op.size, start);
    complete(stream, 1, op.phase);
}

// Who sees the word knows that it is written, and what came before it.  Of a longer record only a part may be there.
void Scheduler::note_polled(const Stream& stream, const Op& op, uint64_t sequence) {
    const uint64_t last = op.size <= kWord ? sequence : sequence - 1;
    sources_.may_be_known(stream.id, last);
    log_evident(stream.id, last);
}

void Scheduler::run_small(Lock& lock, Stream& stream, const Leave& leave) {
    OpQueue& queue = stream.queue;
    const Op* const first = &queue.front();
    const uint64_t head = stream.head();
    uint64_t most = leave.single ? 1 : std::min(kMostInARow, queue.contiguous());
    if (schedule() == Schedule::lazy) most = std::min(most, stream.demanded - head + 1);
    if (stream.held > head) most = std::min(most, stream.held - head);
    if (stream.cause_until >= head && stream.cause) most = 1;
    uint64_t n = 0;
    for (uint64_t bytes = 0; n < most && is_small(first[n]) && first[n].phase == first->phase; ++n) {
        bytes += first[n].size;
        if (n != 0 && (bytes > kMostBytesInARow || is_polled(first[n]))) break;
    }
    const bool timed = log::is_read(log::kTrace), observed = log::is_read(log::kObserver);
    if (observed) [[unlikely]] log_started(stream, head, *first);
    if (timed || observed || sources_.is_any_late()) n = 1;
    if (is_polled(*first)) [[unlikely]] note_polled(stream, *first, head);
    stream.active = 1;
    lock.unlock();
    const uint64_t start = timed ? now_ns() : 0;
    Refusal why{};
    uint64_t done = 0;
    bool failed = false;
    Ends ends;
    while (done < n && !failed) {
        const MovesBytes not_the_program;
        failed = !run_small_op(first[done], why);
        if (failed) ends = ends_of(first[done]);   // unpinned they may be another allocation's
        unpin(first[done++]);
    }
    lock.lock();
    stream.active = 0;
    if (failed) fail(stream, first[done - 1], why, head + done - 1, queue.site(done - 1), ends);
    if (timed) [[unlikely]] log_ended(stream, head, *first, first->size, start);
    for (uint64_t i = 0; i < done; ++i)
        if (first[i].keep) release(first[i].keep);
    const uint32_t phase = first->phase;
    queue.pop(done);
    complete(stream, done, phase);
}

// The head is over: what it holds goes, then everybody may see that it is over.
void Scheduler::finish_head(Lock& lock, Stream& stream) {
    Op op = stream.queue.front();
    std::unique_ptr<Job> job = std::move(stream.job);
    if (op.dst_extent || op.src_extent || op.owns_extra()) {
        stream.active = 1;
        lock.unlock();
        job.reset();
        unpin(op);
        if (op.owns_extra()) delete op.extra;
        lock.lock();
        stream.active = 0;
    }
    end_head(stream, op);
}

// The rest, which needs no other lock.
void Scheduler::end_head(Stream& stream, const Op& op) {
    switch (op.kind) {
        case OpKind::record:
        case OpKind::wait:
            op.mark->drop();
            break;
        case OpKind::notify:
            remove_recorder(stream.queue.front());
            [[fallthrough]];
        case OpKind::wait_notify:
            op.notify->drop();
            break;
        case OpKind::callback:
            op.callbacks->drop();
            delete op.call;
            break;
        default:
            break;
    }
    if (op.keep) release(op.keep);
    stream.queue.pop(1);
    complete(stream, 1, op.phase);
}

void Scheduler::cancel_head(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    if (op.kind == OpKind::free) {
        run_small(lock, stream, {.single = true});   // memory goes back whatever happened
        return;
    }
    if (op.logged != Logged::no) [[unlikely]] log_cancelled(stream, stream.head(), op, false);
    if (op.kind == OpKind::record)
        settle(*op.mark, Failure::keep({.refusal = {.why = Why::cancelled, .device = stream.device},
                                        .stream = stream.id, .sequence = stream.head(), .kind = op.kind,
                                        .cause = stream.cause, .device = stream.device,
                                        .stream_site = stream.site}));
    if (op.kind == OpKind::callback && !op.call) release_token(op.value);
    if (op.kind == OpKind::notify && op.notify->kind == NotifyKind::level) {   // its waiters inherit the cancellation
        bool wake;
        op.notify->fail();
        op.notify->record(wake);
        if (wake) wake_waiters(*op.notify);
    }
    finish_head(lock, stream);
}

void Scheduler::fail(Stream& stream, const Op& op, const Refusal& refusal, FailurePtr cause) {
    fail(stream, op, refusal, stream.head(), stream.queue.site(0), ends_of(op), std::move(cause));
}

void Scheduler::fail(Stream& stream, const Op& op, const Refusal& refusal, uint64_t sequence, uint64_t site, const Ends& ends,
                     FailurePtr cause) {
    if (op.logged != Logged::no) [[unlikely]] log_cancelled(stream, sequence, op, true);
    const uint64_t token = op.kind == OpKind::callback ? op.value : refusal.why == Why::callback_failed ? refusal.token : 0;
    FailurePtr failure = Failure::keep({.refusal = refusal, .stream = stream.id, .sequence = sequence, .kind = op.kind,
                                        .token = token, .cause = std::move(cause),
                                        .device = stream.device, .site = site, .stream_site = stream.site, .ends = ends,
                                        .abort_flag = stream.abort_flag});
    stream.keep(failure);
    if (stream.stops && !stream.cause) {
        stream.cause = std::move(failure);
        stream.cause_until = UINT64_MAX;
    }
}

void Scheduler::complete(Stream& stream, uint64_t n, uint32_t phase) {
    const uint64_t upto = stream.completed.load(std::memory_order_relaxed) + n;
    stream.completed.store(upto, std::memory_order_release);
    sources_.over(stream.id, upto);
    if (stream.cause && upto >= stream.cause_until) stream.cause = nullptr;
    if (n != 0 && stream.group && stream.group->leave(phase, n)) wake_all(stream.group->parked);
    const bool ends = stream.closing && stream.queue.empty();
    for (HostWaiter* waiter = stream.waiters; waiter; waiter = waiter->next)
        if (waiter->target <= upto || ends) {
            waiter->woken.store(true, std::memory_order_release);
            waiter->wake.notify_one();
        }
    if (stream.loop_waits) [[unlikely]] notify_loops(stream.loop_waits, ends ? UINT64_MAX : upto);
    if (ends) {
        stream.closed = true;
        keep_lost(stream);
        able_.dismiss(stream);
        if (stream.group) stream.group->held_up.dismiss(stream);
        if (stream.logged) [[unlikely]] log::write({.kind = log::Kind::stream_ended, .stream = stream.id, .site = 0});
        streams_.erase(stream.id);
    }
}

void Scheduler::settle(Mark& mark, FailurePtr failure) {
    const bool failed = failure != nullptr;
    mark.failure = std::move(failure);
    mark.time_ns = now_ns();
    mark.stream.reset();
    mark.state.store(failed ? Mark::failed : Mark::done, std::memory_order_release);
    wake(mark.waiters);
    while (Stream* const stream = mark.parked.first) {
        unpark(*stream);
        pass_waits(*stream);
    }
    if (mark.fd >= 0) {
        log_evident(mark.stream_id, mark.sequence);
        if (log::is_read(log::kChecker)) log::note_readable();
        const uint64_t one = 1;
        (void)!write(mark.fd, &one, sizeof one);
    }
}

// Ends the waits at a stream's head that are over, as it takes a thread longer to wake; others run what is behind them.
void Scheduler::pass_waits(Stream& stream) {
    const StreamPtr held = stream.shared_from_this();
    while (schedule() == Schedule::eager && !log::is_logging() && can_run(stream)) {
        Op& op = stream.queue.front();
        if (op.kind != OpKind::wait || stream.cause || (stream.group && !stream.group->may_run(op.phase))) break;
        if (op.mark->state.load(std::memory_order_acquire) == Mark::failed) break;
        start_wait(stream, op);
        if (stream.park != Park::none) return;
        end_head(stream, Op(op));
    }
    make_ready(stream);
}

void Scheduler::start_wait(Stream& stream, Op& op) {
    Mark& mark = *op.mark;
    if (mark.state.load(std::memory_order_acquire) == Mark::pending) {
        park(stream, Park::mark, op.timeout_ns);
        return;
    }
    if (!mark.failure || mark.failure->is_aborted()) return;
    if (op.size == 0) return fail(stream, op, {.why = Why::cancelled, .device = stream.device}, mark.failure);
    stream.cause = mark.failure;
    stream.cause_until = stream.head() + op.size;
}

void Scheduler::start_notify(Stream& stream, Op& op) {
    bool wake = false;
    uint64_t number = 0;
    try {
        if (op.logged != Logged::no || log::is_read(log::kObserver)) [[unlikely]] {
            log::Writing writing(op.logged != Logged::no);
            number = op.notify->record(wake);
            log_notified(writing, stream, stream.head(), op, number);
        } else {
            number = op.notify->record(wake);
        }
    } catch (const Refusal& refusal) {
        fail(stream, op, refusal);
        return;
    }
    if (number == 0) {
        fail(stream, op, not_recorded(*op.notify));
        return;
    }
    if (wake) wake_waiters(*op.notify);
}

void Scheduler::start_wait_notify(Stream& stream, Op& op) {
    std::optional<uint32_t> other;
    uint64_t number = 0;
    const bool consumes = op.width != 0;
    while (consumes ? (number = op.notify->consume(other)) == 0 : !op.notify->is_recorded())
        if (!op.notify->announce()) {
            if (op.logged == Logged::when_it_runs) op.logged = log_access(stream, op, stream.head());
            park(stream, Park::notify, op.timeout_ns);
            return;
        }
    if (op.logged != Logged::no) [[unlikely]] {
        if (consumes)
            log_waited(stream, stream.head(), op, number);
        else
            log_cancelled(stream, stream.head(), op, false);   // who consumes the record waits for it
    }
    if (other) fail(stream, op, out_of_order(*op.notify, *other));
    if (op.notify->has_failed()) fail(stream, op, {.why = Why::cancelled, .device = stream.device});
}

// Hand over what comes next on other machines' memory, if a failure of one would cancel those behind it.  The draws of `seeded`
// and the demands of `lazy` are for each alone.
void Scheduler::post_far(Stream& stream) {
    const uint64_t head = stream.head();
    stream.posted = std::max(stream.posted, head - 1);
    const bool one_by_one = schedule() != Schedule::eager || !stream.stops;
    stream.queue.each_from(stream.posted + 1 - head, [&](uint64_t i, const Op& op) {
        if (op.kind != OpKind::far || (i != 0 && one_by_one)) return false;
        if (stream.group && !stream.group->may_run(op.phase)) return false;
        if (!static_cast<FarOperation&>(*op.extra).post()) return false;
        ++stream.posted;
        has_posted_ = true;
        return true;
    });
}

void Scheduler::start_far(Stream& stream, const Op& op) {
    post_far(stream);
    const auto& far = static_cast<const FarOperation&>(*op.extra);
    if (!far.is_over()) return park(stream, Park::far, 0);
    if (const Refusal* const why = far.failure()) {
        Refusal refusal = *why;
        refusal.device = stream.device;
        fail(stream, op, refusal);
    }
}

void Scheduler::far_moved(Stream& stream) {
    Lock lock(mutex_);
    if (stream.park != Park::far) return;
    const StreamPtr held = stream.shared_from_this();
    unpark(stream);
    Leave leave{.single = true};
    // Here and now: a thread would have to be woken for each.
    while (schedule() == Schedule::eager && can_run(stream) && stream.queue.front().kind == OpKind::far && start_head(lock, stream, leave)) {
    }
    make_ready(stream);
}

// To be woken takes longer than a peer usually needs; but another stream may be ready.
bool Scheduler::comes_soon(Lock& lock, Stream& stream, Stepwise& work, const Leave& leave) {
    stream.active = 1;
    lock.unlock();
    bool has_come = false;
    for (const uint64_t until = now_ns() + kWakeNs; !has_come && now_ns() < until;) {
        if (leave.others && leave.others->load(std::memory_order_relaxed) != 0) break;
        sched_yield();
        has_come = work.has_come();
    }
    lock.lock();
    stream.active = 0;
    return has_come;
}

// It moves bytes, and others must not wait for this lock meanwhile.
void Scheduler::start_stepwise(Lock& lock, Stream& stream, Op& op, const Leave& leave) {
    auto& work = static_cast<Stepwise&>(*op.extra);
    while (!stream.cause) {
        stream.active = 1;
        lock.unlock();
        Refusal why{};
        if (work.touches_host) rearm_fault_handlers();
        if (op.logged == Logged::submitted && work.has_late_spans()) [[unlikely]] log_pieces(stream, stream.head(), op, nullptr);
        const Stepwise::Step step = [&] {
            const MovesBytes not_the_program;
            return work.advance(why);
        }();
        lock.lock();
        stream.active = 0;
        if (step == Stepwise::Step::over) return;
        if (step == Stepwise::Step::failed) return fail(stream, op, why);
        if (step == Stepwise::Step::goes_on || work.has_come()) continue;
        if (!leave.single && schedule() == Schedule::eager && comes_soon(lock, stream, work, leave)) continue;
        op.notify = work.awaited;
        op.notify->look_past();
        if (work.has_come() || op.notify->announce()) continue;
        stream.timed_head = 0;   // the time-out is for one wait
        return park(stream, Park::notify, op.timeout_ns);
    }
}

void Scheduler::start_wait_value(Stream& stream, const Op& op) {
    Refusal why{};
    const Word word = look_at_word(op, why);
    if (word == Word::other) park(stream, Park::value, static_cast<const ValueWait*>(op.extra)->timeout_ns);
    if (word == Word::as_wanted && op.logged != Logged::no) [[unlikely]] log_pieces(stream, stream.head(), op, nullptr);
    if (word == Word::gone) fail(stream, op, why);
}

}  // namespace peerlane
