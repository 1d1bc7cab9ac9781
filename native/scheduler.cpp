// What is submitted, what is ready, and the workers.
#include "scheduler.h"

#include <pthread.h>
#include <system_error>
#include <thread>

#include "thread_team.h"

namespace peerlane {

namespace {

constexpr auto kIdleLife = std::chrono::seconds(5);
constexpr auto kSlice = std::chrono::milliseconds(2);
constexpr uint64_t kAtOnce = uint64_t{32} << 10;   // about as long as handing it to somebody else takes
constexpr unsigned kMostStepsBetween = 3;

void prepare_fork() { Scheduler::get().fork_prepare(); }
void after_fork() { Scheduler::get().fork_done(); }

bool is_control(OpKind kind) {
    return kind == OpKind::record || kind == OpKind::wait || kind == OpKind::notify || kind == OpKind::wait_notify ||
           kind == OpKind::callback;
}

}  // namespace

Scheduler& Scheduler::get() {
    static auto* scheduler = new Scheduler;
    return *scheduler;
}

// After the heap: the last to register is the first to lock before a fork, and its lock is the outer one.
Scheduler::Scheduler() {
    Heap::get();
    pthread_atfork(prepare_fork, after_fork, after_fork);
}

void Scheduler::configure(Schedule schedule, uint64_t seed) {
    Lock lock(mutex_);
    schedule_.store(schedule, std::memory_order_relaxed);
    random_.seed(seed);
    background_ = false;
}

StreamPtr Scheduler::create(uint32_t device, bool stops, std::shared_ptr<Group> group, bool legacy) {
    Heap::get().check_usable();
    auto stream = std::make_shared<Stream>();
    stream->device = device;
    stream->stops = stops;
    stream->group = std::move(group);
    stream->legacy = legacy;
    Lock lock(mutex_);
    stream->id = next_stream_++;
    streams_.emplace(stream->id, stream);
    return stream;
}

void Scheduler::refuse_unusable(const Stream& stream) const {
    if (stream.closing || stream.closed)
        throw Refusal{.why = Why::stream_closed, .id = stream.id, .device = stream.device};
}

Submitted Scheduler::submit(Stream& stream, const Op& op) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    refuse_unusable(stream);
    return push(lock, stream, op);
}

Submitted Scheduler::push(Lock& lock, Stream& stream, Op op) {
    const Schedule schedule = this->schedule();
    if (stream.group) op.phase = stream.group->enter(stream.legacy);
    Submitted result{.sequence = stream.submitted.load(std::memory_order_relaxed) + 1};
    if (observing.load(std::memory_order_relaxed)) [[unlikely]] result.order = next_order();
    const bool idle = stream.is_idle() && !stream.cause && (!stream.group || stream.group->may_run(op.phase));
    if (schedule == Schedule::eager && idle && op.kind <= OpKind::fill && op.kind != OpKind::copy_2d &&
        op.size <= kAtOnce) {
        stream.submitted.store(result.sequence, std::memory_order_relaxed);
        run_at_once(lock, stream, op);
        result.at_once = true;
        return result;
    }
    try {
        stream.queue.push(op);
    } catch (const std::bad_alloc&) {
        if (stream.group) stream.group->leave(op.phase, 1);
        throw;
    }
    stream.submitted.store(result.sequence, std::memory_order_relaxed);
    if (op.kind == OpKind::descriptor) lists_.fetch_add(1, std::memory_order_relaxed);
    if (schedule == Schedule::eager && idle && is_control(op.kind)) {
        const StreamPtr held = stream.shared_from_this();
        Leave leave{.single = true};
        start_head(lock, stream, leave);
    }
    if (demanding_ != 0) demand(stream, result.sequence);
    make_ready(stream);
    if (schedule == Schedule::seeded && random_() % 4 == 0)
        pump(lock, 1 + static_cast<unsigned>(random_() % kMostStepsBetween), true);
    return result;
}

Mark* Scheduler::record(Stream& stream, Submitted* done) {
    Heap::get().check_usable();
    auto* mark = new Mark;
    Lock lock(mutex_);
    try {
        refuse_unusable(stream);
        mark->stream = stream.shared_from_this();
        mark->stream_id = stream.id;
        mark->sequence = stream.submitted.load(std::memory_order_relaxed) + 1;
        mark->hold();
        const Submitted pushed = push(lock, stream, {.kind = OpKind::record, .mark = mark});
        if (done) *done = pushed;
        return mark;
    } catch (...) {
        delete mark;
        throw;
    }
}

Submitted Scheduler::wait(Stream& stream, Mark& mark, uint64_t timeout_ns) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    refuse_unusable(stream);
    mark.hold();
    try {
        return push(lock, stream, {.kind = OpKind::wait, .timeout_ns = timeout_ns, .mark = &mark});
    } catch (...) {
        mark.drop();
        throw;
    }
}

bool Scheduler::can_run(const Stream& stream) const {
    return stream.active == 0 && !stream.job && stream.park == Park::none && !stream.queue.empty() &&
           (schedule() != Schedule::lazy || stream.head() <= stream.demanded);
}

void Scheduler::make_ready(Stream& stream) {
    if (stream.ready || !can_help(stream)) return;
    if (schedule() == Schedule::seeded && !background_) {
        for (HostWaiter* sleeper : sleepers_) {
            sleeper->woken.store(true, std::memory_order_release);
            sleeper->wake.notify_one();
        }
        return;
    }
    ready_.push_back(stream.shared_from_this());
    stream.ready = true;
    ready_count_.fetch_add(1, std::memory_order_relaxed);
    if (idle_ != 0)
        work_.notify_one();
    else
        add_worker();
}

// One core is left to the program until it waits.
void Scheduler::add_worker() {
    const unsigned most = ThreadTeam::cores() > 1 ? ThreadTeam::cores() - 1 : 1;
    if (workers_ >= most) return;
    try {
        std::thread([this] { serve(); }).detach();
        ++workers_;
    } catch (const std::system_error&) {
        // No thread to be had: who waits for a stream runs it.
    }
}

void Scheduler::serve() {
    leave_signals_to_others();
    Lock lock(mutex_);
    while (true) {
        if (ready_.empty()) {
            ++idle_;
            const bool woken = work_.wait_for(lock, kIdleLife, [this] { return !ready_.empty(); });
            --idle_;
            if (!woken) break;
        }
        const StreamPtr stream = std::move(ready_.front());
        ready_.pop_front();
        stream->ready = false;
        ready_count_.fetch_sub(1, std::memory_order_relaxed);
        run_slice(lock, *stream, {.at = Clock::now() + kSlice, .others = &ready_count_});
    }
    --workers_;
}

void Scheduler::demand(Stream& stream, uint64_t sequence) {
    if (schedule() != Schedule::lazy) return;
    std::vector<std::pair<StreamPtr, uint64_t>> wanted{{stream.shared_from_this(), sequence}};
    while (!wanted.empty()) {
        const auto [next, upto] = std::move(wanted.back());
        wanted.pop_back();
        if (next->demanded >= upto) continue;
        next->demanded = upto;
        if (next->park == Park::mark) {
            Mark& mark = *next->queue.front().mark;
            if (mark.stream) wanted.emplace_back(mark.stream, mark.sequence);
        }
        make_ready(*next);
    }
}

void Scheduler::demand_all() {
    for (auto& [id, stream] : streams_) demand(*stream, stream->submitted.load(std::memory_order_relaxed));
}

void Scheduler::set_stops(Stream& stream, bool stops) {
    Lock lock(mutex_);
    stream.stops = stops;
}

void Scheduler::begin_callback(Stream& stream) {
    Lock lock(mutex_);
    stream.callback_thread = std::this_thread::get_id();
}

void Scheduler::finish_callback(Stream& stream, uint64_t token, bool raised) {
    if (Heap::get().is_forked()) return;
    Lock lock(mutex_);
    if (stream.park != Park::callback) return;
    unpark(stream);
    const StreamPtr held = stream.shared_from_this();
    stream.callback_thread = {};
    if (raised) {
        const Op& op = stream.queue.front();
        fail(stream, op, stream.head(), {.why = Why::callback_failed, .id = token, .device = stream.device});
    }
    finish_head(lock, stream);
    make_ready(stream);
}

void Scheduler::notify_recorded(Notify& notify) {
    Heap::get().check_usable();
    bool wake;
    if (!notify.record(wake)) throw Refusal{.why = Why::notify_doubled, .id = notify.id, .device = notify.device};
    if (!wake) return;
    if (notify.far) {
        notify.far->ring();
        return;
    }
    Lock lock(mutex_);
    wake_notify(notify.line);
}

void Scheduler::take_released(std::vector<void*>& objects, std::vector<uint64_t>& tokens) {
    Lock lock(mutex_);
    objects.swap(released_);
    tokens.swap(released_tokens_);
    has_released_.store(false, std::memory_order_relaxed);
}

std::vector<Seen> Scheduler::take_seen() {
    Lock lock(mutex_);
    return std::exchange(seen_, {});
}

std::vector<Traced> Scheduler::take_trace(Stream& stream, uint64_t& lost) {
    Lock lock(mutex_);
    lost = stream.traced - stream.trace.size();
    const size_t oldest = stream.trace.empty() ? 0 : stream.traced % stream.trace.size();
    std::vector<Traced> found(stream.trace.begin() + static_cast<long>(oldest), stream.trace.end());
    found.insert(found.end(), stream.trace.begin(), stream.trace.begin() + static_cast<long>(oldest));
    stream.trace.clear();
    stream.traced = 0;
    return found;
}

uint64_t Scheduler::threads() {
    Lock lock(mutex_);
    return workers_ + (watching_ ? 1 : 0);
}

}  // namespace peerlane
