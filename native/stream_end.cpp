// Abort, close, and who waits in vain.
#include "scheduler.h"

namespace peerlane {

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
    return wait_until(lock, [&] { return stream.closed.load(); }, [&] { return &stream; }, stream.waiters, target, {}, poll);
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
    // What others submit while the lock is given away is not meant.
    while (stream.cause && !stream.queue.empty() && can_run(stream)) cancel_head(lock, stream);
}

// What is queued is cancelled when its turn comes; a running job ends at its next chunk.
void Scheduler::give_up(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    const uint64_t last = stream.submitted.load(std::memory_order_relaxed);
    if (!stream.cause) {
        cancel(stream, last);
    } else {
        stream.cause_until = std::max(stream.cause_until, last);   // a stream that stopped stays so until it is told
    }
    stream.demanded = std::max(stream.demanded, last);
    if (stream.park == Park::callback && stream.callback_thread == std::thread::id{}) {
        op.callbacks->remove(stream);   // who has taken it by now learns when he begins
        unpark(stream);
    } else if (stream.park != Park::none && stream.park != Park::callback) {
        unpark(stream);
    }
    if (stream.job) {
        stream.job->fail({.why = Why::cancelled, .device = stream.device});
        if (stream.job->workers == 0) finish_job(lock, stream);
    }
    make_ready(stream);
}

void Scheduler::cancel(Stream& stream, uint64_t until) {
    FailurePtr failure = Failure::keep({.refusal = {.why = Why::cancelled, .device = stream.device}, .stream = stream.id,
                                        .sequence = stream.head(), .kind = stream.queue.front().kind});
    if (!stream.failure) stream.failure = failure;
    stream.cause = std::move(failure);
    stream.cause_until = until;
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

// A callback comes back by itself, and who takes it is not known.
bool Scheduler::give_up_if_hopeless(Stream& stream) {
    if (stream.park == Park::none || stream.park == Park::callback || !is_hopeless(stream, true)) return false;
    cancel(stream, UINT64_MAX);
    unpark(stream);
    make_ready(stream);
    return true;
}

void Scheduler::refuse_if_hopeless(Stream& stream) {
    if (stream.park != Park::none && is_hopeless(stream, false))
        throw Refusal{.why = Why::deadlock, .id = stream.id, .device = stream.device};
}

bool Scheduler::is_mine(const Stream& stream) const {
    const auto here = std::this_thread::get_id();
    if (stream.callback_thread != std::thread::id{}) return stream.callback_thread == here;
    const CallbackQueue& queue = *stream.queue.front().callbacks;
    return !queue.shared && queue.server == here && queue.running != 0;
}

// Without looking at other streams.
bool Scheduler::seems_hopeful(const Stream& stream, bool alone) const {
    if (!alone && stream.has_deadline) return true;
    switch (stream.park) {
        case Park::none:
            return true;
        case Park::callback:
            return alone || !is_mine(stream);
        case Park::value:
            return !alone;   // anybody may write it
        case Park::notify:   // anybody may record it, once
            if (stream.queue.front().notify->promised.load(std::memory_order_relaxed)) return true;
            return !alone && !(stream.queue.front().notify->is_local() && stream.recordable);
        default:
            return false;
    }
}

// From those that get on to those that they let go on: a circle is never reached.
bool Scheduler::is_hopeless(const Stream& asked, bool alone) {
    const auto each_notified = [&](const Stream& stream, const auto& visit) {
        stream.queue.each([&](uint64_t, const Op& op) {
            if (op.kind == OpKind::notify) each_parked_on(op.notify->line, visit);
        });
    };
    Stream* hopeful = nullptr;   // whose queue was not looked at
    const auto hope = [&](Stream& stream) {
        if (std::exchange(stream.hopeful, true)) return;
        stream.hope_next = hopeful;
        hopeful = &stream;
    };
    for (auto& [id, stream] : streams_) stream->hopeful = stream->recordable = false;
    if (!alone)
        for (auto& [id, stream] : streams_) each_notified(*stream, [](Stream& parked) { parked.recordable = true; });
    for (auto& [id, stream] : streams_)
        if (seems_hopeful(*stream, alone)) hope(*stream);
    while (hopeful) {
        while (hopeful) {
            const Stream& stream = *std::exchange(hopeful, hopeful->hope_next);
            each_notified(stream, hope);
            stream.queue.each([&](uint64_t, const Op& op) {
                if (op.kind != OpKind::record) return;
                for (Stream* parked = op.mark->parked.first; parked; parked = parked->park_next) hope(*parked);
            });
        }
        // A barrier opens when all in front of it get on.
        const auto is_at_front = [](const Stream& stream) {
            return stream.group && !stream.queue.empty() && stream.group->may_run(stream.queue.front().phase);
        };
        for (auto& [id, stream] : streams_)
            if (stream->group) stream->group->blocked = false;
        for (auto& [id, stream] : streams_)
            if (is_at_front(*stream) && !stream->hopeful) stream->group->blocked = true;
        for (auto& [id, stream] : streams_)
            if (stream->park == Park::phase && !stream->group->blocked) hope(*stream);
    }
    return !asked.hopeful;
}

}  // namespace peerlane
