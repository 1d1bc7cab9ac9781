// Operations of many steps: jobs that threads open, join and leave.
#include "copy/kernels.h"
#include "memory/fault_guard.h"
#include "stream/descriptor.h"
#include "stream/logged.h"
#include "stream/scheduler.h"

namespace peerlane {

void Job::fail(const Refusal& why) {
    is_stopped.store(true, std::memory_order_relaxed);
    if (claimed.exchange(true, std::memory_order_relaxed)) return;
    refusal = why;
    failed.store(true, std::memory_order_release);
}

void Scheduler::open_job(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    std::unique_ptr<Job> job;
    try {
        job = std::make_unique<Job>();
    } catch (const std::bad_alloc&) {
        fail(stream, op, {.why = Why::system_memory, .size = op.size});
        finish_head(lock, stream);
        return;
    }
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
        Heap::get().check_leases(op.dst_range(), op.src_range());   // they may have ended since it was submitted
        switch (op.kind) {
            case OpKind::copy:
            case OpKind::reduce:
                sides(op.size);
                job->task = plan_move(op, needs_staging(op.dst_range(), op.src_range(), op.direct));
                break;
            case OpKind::copy_2d: {
                const auto& shape = static_cast<const Rectangle&>(*op.extra);
                sides(op.src_size());
                job->task = plan_copy_2d(op.dst, shape.dst_pitch, op.src, shape.src_pitch, shape.width, shape.height,
                                         needs_staging(op.dst_range(), op.src_range(), op.direct));
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
            default: {
                auto& batch = static_cast<Batch&>(*op.extra);
                for (const Range& held : batch.pins) Heap::get().check_lease("address", held);
                job->task = op.kind == OpKind::file ? plan_files(*static_cast<FileBatch&>(batch).copies, batch.pieces) : plan_pieces(batch.pieces);
            }
        }
        if (job->task.kind != Task::Kind::none) rearm_fault_handlers();
        check_ends(job->sides, job->side_count);
        planned = true;
    } catch (const Refusal& refusal) {
        why = refusal;
    } catch (const std::bad_alloc&) {
        why = {.why = Why::system_memory, .size = op.size};
    }
    if (planned && op.kind == OpKind::descriptor && op.logged != Logged::no) [[unlikely]]
        log_pieces(stream, stream.head(), op, &static_cast<const Batch&>(*op.extra).pieces);
    lock.lock();
    stream.active = 0;
    if (stream.cause) why = {.why = Why::cancelled, .device = stream.device};   // aborted while it was planned
    if (!planned || stream.cause) job->fail(why);
    if (log::is_read(log::kObserver)) [[unlikely]]
        log_started(stream, stream.head(), op, op.kind == OpKind::descriptor && planned ? job->task.pieces : nullptr);
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
    const MovesBytes not_the_program;
    FaultGuard guard;
    const auto loop = [&] {
        while (!job.is_stopped.load(std::memory_order_relaxed)) {
            const uint64_t i = job.cursor.fetch_add(1, std::memory_order_relaxed);
            if (i >= job.task.steps) return;
            job.task.step(i);
            if (--leave.steps == 0) return;
            if (Clock::now() >= leave.at && (!leave.others || leave.others->load(std::memory_order_relaxed) != 0)) return;
        }
    };
    if (able && !guarded(guard, loop)) job.fail(explain_fault(guard, job.task, job.sides, job.side_count));
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
        fail(stream, op, job.refusal, job.refusal.why == Why::cancelled ? stream.cause : nullptr);
    }
    if (log::is_read(log::kTrace)) [[unlikely]] log_ended(stream, stream.head(), op, job.task.size * job.task.height, job.start_ns);
    finish_head(lock, stream);
}

}  // namespace peerlane
