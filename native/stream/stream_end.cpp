// Abort, close, and who waits in vain.
#include "share/shared_signal.h"
#include "stream/logged.h"
#include "stream/scheduler.h"

namespace peerlane {

Outcome Scheduler::close(Stream& stream, bool wait, Poll poll) {
    if (Heap::get().is_forked()) return Outcome::reached;
    Lock lock(mutex_);
    const StreamPtr held = stream.shared_from_this();
    if (stream.closed) return Outcome::reached;
    note_call();
    let_held_run();
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

void Scheduler::drop(Stream& stream) {
    if (Heap::get().is_forked()) return;
    {
        Lock lock(mutex_);
        stream.dropped = !stream.closing;
    }
    close(stream, false, {});
    Lock lock(mutex_);
    keep_lost(stream);
}

void Scheduler::keep_lost(Stream& stream) {
    if (!stream.dropped || !stream.failure) return;
    stream.dropped = false;
    FailurePtr failure = stream.take();
    if (!failure) return;
    or_lose([&] { lost_.push_back(std::move(failure)); });
    has_lost_.store(true, std::memory_order_relaxed);
    has_released_.store(true, std::memory_order_relaxed);   // submissions look at one flag
}

std::vector<FailurePtr> Scheduler::unreported() {
    Lock lock(mutex_);
    std::vector<FailurePtr> failures;
    for (const auto& [id, stream] : streams_)
        if (stream->failure && !stream->failure->is_aborted()) failures.push_back(stream->failure);
    return failures;
}

std::vector<FailurePtr> Scheduler::take_lost() {
    Lock lock(mutex_);
    has_lost_.store(false, std::memory_order_relaxed);
    return std::exchange(lost_, {});
}

void Scheduler::abort(Stream& stream, bool close) {
    if (Heap::get().is_forked()) return;
    Lock lock(mutex_);
    const StreamPtr held = stream.shared_from_this();
    if (stream.closed) return;
    note_call();
    if (close) {
        stream.closing = true;
        stream.dropped = false;   // that it was ended is no news
    }
    if (stream.is_idle()) {
        if (close) complete(stream, 0, 0);
        return;
    }
    log_aborted(stream, stream.submitted.load(std::memory_order_relaxed));
    give_up(lock, stream);
    // Operations that others submit while the lock is released do not count.
    while (stream.cause && !stream.queue.empty() && can_run(stream)) cancel_head(lock, stream);
}

// A queued operation is cancelled when the stream comes to it; a running job ends at its next chunk.
void Scheduler::give_up(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    const uint64_t last = stream.submitted.load(std::memory_order_relaxed);
    if (!stream.cause) {
        cancel(stream, last);
    } else {
        stream.cause_until = std::max(stream.cause_until, last);   // a stream that stopped stays so until a synchronization reports it
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

void Scheduler::cancel(Stream& stream, uint64_t until, uint64_t lost_to) {
    const Why why = lost_to != 0 ? Why::waits_for_lost : Why::cancelled;
    FailurePtr failure = Failure::keep({.refusal = {.why = why, .pid = lost_to, .device = stream.device}, .stream = stream.id,
                                        .sequence = stream.head(), .kind = stream.queue.front().kind, .device = stream.device,
                                        .site = stream.queue.site(0), .stream_site = stream.site,
                                        .abort_flag = stream.abort_flag});
    stream.keep(failure);
    stream.cause = std::move(failure);
    stream.cause_until = until;
}

std::vector<StreamPtr> Scheduler::streams_of(uint32_t device) {
    std::vector<StreamPtr> streams;
    Lock lock(mutex_);
    for (auto& [id, stream] : streams_)
        if (stream->device == device) streams.push_back(stream);
    return streams;
}

void Scheduler::close_device(uint32_t device) {
    const std::vector<StreamPtr> streams = streams_of(device);
    for (const StreamPtr& stream : streams) abort(*stream, true);
    // Functions do not pin the memory that they use, which ends next.
    for (const StreamPtr& stream : streams)
        if (runs_function(*stream)) close(*stream, true, {});
}

bool Scheduler::runs_function(const Stream& stream) {
    const Lock lock(mutex_);
    return stream.active != 0 && !stream.queue.empty() && stream.queue.front().kind == OpKind::stepwise;
}

// A callback comes back by itself, and who takes it is not known.
bool Scheduler::give_up_if_hopeless(Stream& stream) {
    if (stream.park == Park::none || stream.park == Park::callback || !is_hopeless(stream, true)) return false;
    const Notify* const notify = stream.park == Park::notify ? stream.queue.front().notify : nullptr;
    SharedSignal* const shared = notify ? notify->shared() : nullptr;
    cancel(stream, UINT64_MAX, shared ? shared->lost_to(notify->index()) : notify ? notify->lost_to.load(std::memory_order_relaxed) : 0);
    const uint64_t hope = hope_;
    unpark(stream);
    if (!is_awaited(stream)) hope_ = hope;   // thousands that wait in vain are closed without asking for each anew
    make_ready(stream);
    return true;
}

// Whether others wait for more of it than for notifies, which a cancelled stream does not give.
bool Scheduler::is_awaited(const Stream& stream) const {
    bool awaited = stream.group && stream.group->parked.first;
    stream.queue.each([&](uint64_t, const Op& op) { awaited |= op.kind == OpKind::record && op.mark->parked.first; });
    return awaited;
}

// All that is queued, and nothing will be added.
bool Scheduler::is_cancelled(const Stream& stream) const {
    return stream.closing && stream.cause && stream.cause_until >= stream.submitted.load(std::memory_order_relaxed);
}

void Scheduler::refuse_if_hopeless(Stream& stream) {
    if (stream.park != Park::none && is_hopeless(stream, false))
        throw Refusal{.why = Why::deadlock, .stream = {.id = stream.id}, .device = stream.device};
}

bool Scheduler::is_mine(const Stream& stream) const {
    const auto this_thread = std::this_thread::get_id();
    if (stream.callback_thread != std::thread::id{}) return stream.callback_thread == this_thread;
    const CallbackQueue& queue = *stream.queue.front().callbacks;
    return !queue.shared && queue.server == this_thread && queue.running != 0;
}

// Without looking at other streams.
bool Scheduler::seems_hopeful(const Stream& stream, bool alone) {
    if (!alone && stream.has_deadline) return true;
    switch (stream.park) {
        case Park::none:
        case Park::far:   // it comes back, or its peer is lost
            return true;
        case Park::callback:
            return alone || !is_mine(stream);
        case Park::value:
            return !alone;   // anybody may write it
        case Park::notify: {   // anybody may record it, once
            const Notify& notify = *stream.queue.front().notify;
            if (notify.promised.load(std::memory_order_relaxed)) return true;
            if (notify.shared() && notify.shared()->others_live(notify.index())) return true;
            // Other ranks of this process take part in a collective, or say farewell.
            if (stream.queue.front().kind == OpKind::stepwise && notify.is_local() && !notify.abandoned.load(std::memory_order_relaxed)) return true;
            if (notify.is_recorded()) return true;   // who ended may have recorded it before, and nobody has looked yet
            return !alone && !(notify.is_local() && any_recorder(notify.line, [](Stream&) { return true; }));
        }
        default:
            return false;
    }
}

// Whether the visit says true for one of those that may let the stream go on.
template <class Visit>
bool Scheduler::any_helper(const Stream& stream, const Visit& visit) {
    switch (stream.park) {
        case Park::mark:
            return visit(*stream.queue.front().mark->stream);
        case Park::notify:
            return any_recorder(stream.queue.front().notify->line,
                                [&](Stream& recorder) { return !is_cancelled(recorder) && visit(recorder); });
        case Park::phase:   // the others of its group get on
            return std::any_of(stream.group->held_up.begin(), stream.group->held_up.end(),
                               [&](Stream* other) { return visit(*other); });
        default:
            return false;
    }
}

// A barrier opens when all in front of it get on; else one that gets on is enough.
bool Scheduler::is_let_on(const Stream& stream) {
    if (stream.park == Park::phase) return !any_helper(stream, [](const Stream& other) { return !other.hopeful; });
    return any_helper(stream, [](const Stream& other) { return other.hopeful; });
}

// Finds all on whom the stream depends, then who of them gets on: a circle never does.
bool Scheduler::is_hopeless(Stream& asked, bool alone) {
    const auto is_known = [&](const Stream& stream) { return alone && stream.hopeless_since == hope_; };
    Stream* last = nullptr;
    const auto ask = [&](Stream& stream) {
        if (std::exchange(stream.asked_about, true)) return false;
        stream.hopeful = !is_known(stream) && seems_hopeful(stream, alone);
        stream.asked_next = nullptr;
        if (last) last->asked_next = &stream;
        last = &stream;
        return false;
    };
    ask(asked);
    for (Stream* stream = &asked; stream; stream = stream->asked_next)
        if (!stream->hopeful && !is_known(*stream)) any_helper(*stream, ask);
    Stream* from_last = nullptr;   // a chain is settled in one go from its end
    for (Stream* stream = &asked; stream;) {
        Stream* const next = std::exchange(stream->asked_next, from_last);
        from_last = std::exchange(stream, next);
    }
    for (bool changed = true; changed && !asked.hopeful;) {
        changed = false;
        for (Stream* stream = from_last; stream; stream = stream->asked_next)
            if (!stream->hopeful && !is_known(*stream) && is_let_on(*stream)) stream->hopeful = changed = true;
    }
    for (Stream* stream = from_last; stream; stream = stream->asked_next) {
        stream->asked_about = false;
        if (alone && !asked.hopeful && !stream->hopeful) stream->hopeless_since = hope_;
    }
    return !asked.hopeful;
}

}  // namespace peerlane
