// What runs: slices of a stream, small operations in a row, jobs that threads join.
#include <cstring>
#include <unistd.h>

#include "descriptor.h"
#include "fault_guard.h"
#include "kernels.h"
#include "scheduler.h"

namespace peerlane {

namespace {

constexpr uint64_t kSmall = uint64_t{64} << 10;
constexpr uint64_t kMostInARow = 64, kMostBytesInARow = kChunk;
constexpr size_t kTraceLength = 1 << 14;

bool is_small(const Op& op) {
    return op.kind == OpKind::free || ((op.kind == OpKind::copy || op.kind == OpKind::fill) && op.size <= kSmall);
}

// True: done.  Nothing is released.
bool run_small_op(const Op& op, Refusal& why) {
    try {
        if (op.kind == OpKind::free) {
            Heap::get().retire(op.dst_extent, op.value);
            return true;
        }
        FaultGuard guard;
        if (!op.dst_extent || (op.kind == OpKind::copy && !op.src_extent)) rearm_fault_handlers();
        if (op.kind == OpKind::fill) {
            const Task task = plan_fill(op.dst, op.value, op.width, op.size);
            if (guarded(guard, [&] { task.step(0); })) return true;
            const Side side = side_at("dst", op.dst, op.size);
            why = explain_fault(guard.address, &side, 1);
            return false;
        }
        if (needs_staging(op.dst_extent, op.src_extent, op.direct)) {
            prepare_staging();
            const Task task = plan_copy(op.dst, op.src, op.size, true);
            if (guarded(guard, [&] { task.step(0); })) return true;
        } else {
            char* const to = op.dst;
            const char* const from = op.src;
            const uint64_t size = op.size;
            if (guarded(guard, [=] { memmove(to, from, size); })) return true;
        }
        const Side sides[] = {side_at("dst", op.dst, op.size), side_at("src", op.src, op.size)};
        why = explain_fault(guard.address, sides, 2);
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

uint64_t now_ns() { return static_cast<uint64_t>(Clock::now().time_since_epoch().count()); }

}  // namespace

void Job::fail(const Refusal& why) {
    given_up.store(true, std::memory_order_relaxed);
    if (claimed.exchange(true, std::memory_order_relaxed)) return;
    refusal = why;
    failed.store(true, std::memory_order_release);
}

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
    make_ready(stream);
    return ran;
}

// True when the head is over or has become a job; false when the stream was parked.
bool Scheduler::start_head(Lock& lock, Stream& stream, Leave& leave) {
    Op& op = stream.queue.front();
    if (stream.group && !stream.group->may_run(op.phase)) {
        park(stream, Park::phase, 0);
        return false;
    }
    if (stream.cause) {
        cancel_head(lock, stream);
        return true;
    }
    if (is_small(op)) {
        run_small(lock, stream, leave);
        return true;
    }
    if (op.moves_bytes()) {
        open_job(lock, stream);
        return true;
    }
    // A wait starts when it is over: parked, it would be told again whenever it looks.
    const bool waits = op.kind == OpKind::wait || op.kind == OpKind::wait_notify;
    const bool observed = observing.load(std::memory_order_relaxed);
    if (observed && !waits) note_started(stream, stream.head(), op, nullptr);
    switch (op.kind) {
        case OpKind::record:
            settle(*op.mark, nullptr);
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
        default:
            park(stream, Park::callback, 0);
            op.callbacks->push({op.value, stream.shared_from_this()});
    }
    if (stream.park != Park::none) return false;
    if (observed && waits) note_started(stream, stream.head(), op, nullptr);
    finish_head(lock, stream);
    return true;
}

void Scheduler::run_at_once(Lock& lock, Stream& stream, const Op& op) {
    const uint64_t sequence = stream.submitted.load(std::memory_order_relaxed);
    const bool timed = tracing.load(std::memory_order_relaxed);
    if (observing.load(std::memory_order_relaxed)) note_started(stream, sequence, op, nullptr);
    const uint64_t start = timed ? now_ns() : 0;
    Refusal why{};
    if (!run_small_op(op, why)) fail(stream, op, sequence, why);
    unpin(op);
    if (timed) note_time(stream, sequence, op, start);
    complete(stream, 1, op.phase);
    (void)lock;
}

void Scheduler::run_small(Lock& lock, Stream& stream, const Leave& leave) {
    OpQueue& queue = stream.queue;
    const Op* const first = &queue.front();
    const uint64_t head = stream.head();
    uint64_t most = leave.single ? 1 : std::min(kMostInARow, queue.contiguous());
    if (schedule() == Schedule::lazy) most = std::min(most, stream.demanded - head + 1);
    if (stream.cause_until >= head && stream.cause) most = 1;
    uint64_t n = 0;
    for (uint64_t bytes = 0; n < most && is_small(first[n]) && first[n].phase == first->phase; ++n) {
        bytes += first[n].size;
        if (n != 0 && bytes > kMostBytesInARow) break;
    }
    const bool timed = tracing.load(std::memory_order_relaxed);
    if (observing.load(std::memory_order_relaxed)) {
        n = 1;
        note_started(stream, head, *first, nullptr);
    }
    if (timed) n = 1;
    stream.active = 1;
    lock.unlock();
    const uint64_t start = timed ? now_ns() : 0;
    Refusal why{};
    uint64_t done = 0;
    bool failed = false;
    while (done < n && !failed) {
        failed = !run_small_op(first[done], why);
        unpin(first[done++]);
    }
    lock.lock();
    stream.active = 0;
    if (failed) fail(stream, first[done - 1], head + done - 1, why);
    if (timed) note_time(stream, head, *first, start);
    for (uint64_t i = 0; i < done; ++i)
        if (first[i].keep) released_.push_back(first[i].keep);
    if (!released_.empty()) has_released_.store(true, std::memory_order_relaxed);
    const uint32_t phase = first->phase;
    queue.pop(done);
    complete(stream, done, phase);
}

void Scheduler::open_job(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    auto job = std::make_unique<Job>();
    stream.active = 1;
    lock.unlock();
    job->start_ns = now_ns();
    Refusal why{};
    bool planned = false;
    try {
        const auto sides = [&](uint64_t src_size) {
            job->sides[0] = side_at("dst", op.dst, op.size);
            job->sides[1] = side_at("src", op.src, src_size);
            job->side_count = 2;
        };
        switch (op.kind) {
            case OpKind::copy:
                sides(op.size);
                job->task = plan_copy(op.dst, op.src, op.size, needs_staging(op.dst_extent, op.src_extent, op.direct));
                break;
            case OpKind::copy_2d: {
                const auto& shape = static_cast<const Rectangle&>(*op.extra);
                sides(op.src_size());
                job->task = plan_copy_2d(op.dst, shape.dst_pitch, op.src, shape.src_pitch, shape.width, shape.height,
                                         needs_staging(op.dst_extent, op.src_extent, op.direct));
                break;
            }
            case OpKind::fill:
                sides(0);
                job->side_count = 1;
                job->task = plan_fill(op.dst, op.value, op.width, op.size);
                break;
            case OpKind::descriptor:
                static_cast<Launch&>(*op.extra).read(op.dst, op.direct);
                [[fallthrough]];
            default:
                job->task = plan_pieces(static_cast<Batch&>(*op.extra).pieces);
        }
        if (job->task.kind != Task::Kind::none) rearm_fault_handlers();
        planned = true;
    } catch (const Refusal& refusal) {
        why = refusal;
    } catch (const std::bad_alloc&) {
        why = {.why = Why::system_memory, .size = op.size};
    }
    lock.lock();
    stream.active = 0;
    if (!planned) job->fail(why);
    if (observing.load(std::memory_order_relaxed)) note_started(stream, stream.head(), op, job.get());
    stream.job = std::move(job);
    if (!stream.job->has_steps()) {
        finish_job(lock, stream);
    } else if (stream.job->task.parallel) {
        make_ready(stream);   // others may join
    }
}

bool Scheduler::join_job(Lock& lock, Stream& stream, Leave& leave) {
    Job& job = *stream.job;
    ++job.workers;
    ++stream.active;
    if (job.task.parallel) make_ready(stream);
    lock.unlock();
    bool able = true;
    if (job.task.staged) {
        try {
            prepare_staging();
        } catch (const std::bad_alloc&) {
            able = false;
            job.fail({.why = Why::system_memory, .size = kChunk});
        }
    }
    FaultGuard guard;
    const auto loop = [&] {
        while (!job.given_up.load(std::memory_order_relaxed)) {
            const uint64_t i = job.cursor.fetch_add(1, std::memory_order_relaxed);
            if (i >= job.task.steps) return;
            job.task.step(i);
            if (--leave.steps == 0) return;
            if (Clock::now() >= leave.at && (!leave.others || leave.others->load(std::memory_order_relaxed) != 0)) return;
        }
    };
    if (able && !guarded(guard, loop)) job.fail(explain_fault(guard.address, job.task, job.sides, job.side_count));
    if (job.task.streams) store_fence();
    lock.lock();
    --job.workers;
    --stream.active;
    if (job.workers == 0 && !job.has_steps()) finish_job(lock, stream);
    return true;
}

void Scheduler::finish_job(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    Job& job = *stream.job;
    if (job.failed.load(std::memory_order_acquire)) {
        fail(stream, op, stream.head(), job.refusal, job.refusal.why == Why::cancelled ? stream.cause : nullptr);
    }
    if (tracing.load(std::memory_order_relaxed)) note_time(stream, stream.head(), op, job.start_ns);
    finish_head(lock, stream);
}

// The head is over: what it holds goes, then everybody may see that it is over.
void Scheduler::finish_head(Lock& lock, Stream& stream) {
    Op op = stream.queue.front();
    std::unique_ptr<Job> job = std::move(stream.job);
    const bool owns_extra = op.kind == OpKind::copy_2d || op.kind == OpKind::batch || op.kind == OpKind::descriptor;
    if (op.dst_extent || op.src_extent || owns_extra) {
        stream.active = 1;
        lock.unlock();
        job.reset();
        unpin(op);
        if (owns_extra) delete op.extra;
        lock.lock();
        stream.active = 0;
    }
    switch (op.kind) {
        case OpKind::record:
        case OpKind::wait:
            op.mark->drop();
            break;
        case OpKind::notify:
        case OpKind::wait_notify:
            op.notify->drop();
            break;
        case OpKind::callback:
            op.callbacks->drop();
            break;
        default:
            break;
    }
    if (op.keep) {
        released_.push_back(op.keep);
        has_released_.store(true, std::memory_order_relaxed);
    }
    if (op.kind == OpKind::descriptor) lists_.fetch_sub(1, std::memory_order_relaxed);
    stream.queue.pop(1);
    complete(stream, 1, op.phase);
}

void Scheduler::cancel_head(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    if (op.kind == OpKind::free) {
        run_small(lock, stream, {.single = true});   // memory goes back whatever happened
        return;
    }
    if (op.kind == OpKind::record) {
        auto failure = std::make_shared<Failure>();
        *failure = {.refusal = {.why = Why::cancelled, .device = stream.device}, .stream = stream.id,
                    .sequence = stream.head(), .kind = op.kind, .cause = stream.cause};
        settle(*op.mark, std::move(failure));
    }
    if (op.kind == OpKind::callback) {
        released_tokens_.push_back(op.value);
        has_released_.store(true, std::memory_order_relaxed);
    }
    finish_head(lock, stream);
}

void Scheduler::fail(Stream& stream, const Op& op, uint64_t sequence, const Refusal& refusal, FailurePtr cause) {
    auto failure = std::make_shared<Failure>();
    *failure = {.refusal = refusal, .stream = stream.id, .sequence = sequence, .kind = op.kind,
                .token = op.kind == OpKind::callback ? op.value : 0, .cause = std::move(cause)};
    if (!stream.failure) stream.failure = failure;
    if (stream.stops && !stream.cause) {
        stream.cause = failure;
        stream.cause_until = UINT64_MAX;
    }
}

void Scheduler::complete(Stream& stream, uint64_t n, uint32_t phase) {
    const uint64_t upto = stream.completed.load(std::memory_order_relaxed) + n;
    stream.completed.store(upto, std::memory_order_release);
    if (stream.cause && upto >= stream.cause_until) stream.cause = nullptr;
    if (n != 0 && stream.group && stream.group->leave(phase, n)) wake_all(stream.group->parked);
    const bool ends = stream.closing && stream.queue.empty();
    for (HostWaiter* waiter = stream.waiters; waiter; waiter = waiter->next)
        if (waiter->target <= upto || ends) {
            waiter->woken.store(true, std::memory_order_release);
            waiter->wake.notify_one();
        }
    if (ends) {
        stream.closed = true;
        streams_.erase(stream.id);
    }
}

void Scheduler::settle(Mark& mark, FailurePtr failure) {
    const bool failed = failure != nullptr;
    mark.failure = std::move(failure);
    mark.time_ns = now_ns();
    mark.stream.reset();
    mark.state.store(failed ? Mark::failed : Mark::done, std::memory_order_release);
    for (HostWaiter* waiter = mark.waiters; waiter; waiter = waiter->next) {
        waiter->woken.store(true, std::memory_order_release);
        waiter->wake.notify_one();
    }
    wake_all(mark.parked);
    if (mark.fd >= 0) {
        const uint64_t one = 1;
        (void)!write(mark.fd, &one, sizeof one);
    }
}

void Scheduler::start_wait(Stream& stream, Op& op) {
    Mark& mark = *op.mark;
    if (mark.state.load(std::memory_order_acquire) == Mark::pending) {
        park(stream, Park::mark, op.timeout_ns);
        return;
    }
    if (mark.failure)
        fail(stream, op, stream.head(), {.why = Why::cancelled, .device = stream.device}, mark.failure);
}

void Scheduler::start_notify(Stream& stream, Op& op) {
    bool wake;
    if (!op.notify->record(wake)) {
        fail(stream, op, stream.head(), {.why = Why::notify_doubled, .id = op.notify->id, .device = op.notify->device});
        return;
    }
    if (!wake) return;
    if (op.notify->far)
        op.notify->far->ring();
    else
        wake_notify(op.notify->line);
}

void Scheduler::start_wait_notify(Stream& stream, Op& op) {
    while (!op.notify->consume())
        if (!op.notify->announce()) {
            park(stream, Park::notify, op.timeout_ns);
            return;
        }
}

void Scheduler::note_time(Stream& stream, uint64_t sequence, const Op& op, uint64_t start_ns) {
    const Traced entry{sequence, stream.job ? stream.job->task.size * stream.job->task.height : op.size, start_ns, now_ns(),
                       op.kind};
    if (stream.trace.size() < kTraceLength)
        stream.trace.push_back(entry);
    else
        stream.trace[stream.traced % kTraceLength] = entry;
    ++stream.traced;
}

void Scheduler::note_started(const Stream& stream, uint64_t sequence, const Op& op, const Job* job) {
    Seen seen{.order = next_order(), .stream = stream.id, .sequence = sequence, .kind = op.kind};
    add_spans(seen.spans, op);
    if (job && op.kind == OpKind::descriptor && job->task.pieces) add_spans(seen.spans, *job->task.pieces);
    add_signals(seen, op, true);
    seen_.push_back(std::move(seen));
}

void Scheduler::note(Seen seen) {
    Lock lock(mutex_);
    seen_.push_back(std::move(seen));
}

}  // namespace peerlane
