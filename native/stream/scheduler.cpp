// What is submitted, what is ready, and the workers.
#include "stream/scheduler.h"

#include <pthread.h>
#include <thread>

#include "copy/thread_team.h"
#include "log/threads.h"
#include "memory/threads.h"
#include "stream/logged.h"
#include "stream/wait_set.h"

namespace peerlane {

namespace {

constexpr auto kIdleLife = std::chrono::seconds(5);
constexpr auto kWorkerSlice = std::chrono::milliseconds(2);
constexpr uint64_t kAtOnce = uint64_t{32} << 10;   // about as long as handing it to somebody else takes
constexpr unsigned kMostStepsBetween = 3;

void prepare_fork() { Scheduler::get().fork_prepare(); }
void after_fork() { Scheduler::get().fork_done(); }

bool is_control(OpKind kind) {
    return kind == OpKind::record || kind == OpKind::wait || kind == OpKind::notify || kind == OpKind::wait_notify ||
           kind == OpKind::callback || kind == OpKind::far;
}

// What the submitting thread begins with, while its stream is idle.
bool begins_at_once(const Op& op) {
    return is_control(op.kind) || (op.kind == OpKind::stepwise && static_cast<const Stepwise*>(op.extra)->is_brief());
}

}  // namespace

Scheduler& Scheduler::get() {
    static auto* scheduler = new Scheduler;
    return *scheduler;
}

// After the heap: the last to register is the first to lock before a fork, and its lock is the outer one.
Scheduler::Scheduler() {
    Heap::get();
    Failure::keep({});   // makes the one for want of memory
    pthread_atfork(prepare_fork, after_fork, after_fork);
}

bool Scheduler::begin_anew() {
    Lock lock(mutex_);
    if (!streams_.empty()) return false;
    new (&work_) std::condition_variable;   // its parent's workers sleep there, for ever
    workers_ = idle_ = 0;
    watching_ = false;
    watch_until_ = UINT64_MAX;
    at_rest_ = false;
    waiting_ = 0;
    sleepers_.clear();
    held_.clear();
    hosts_.clear();   // on stacks of its parent's threads
    bell_node_.reset();
    bell_page_.reset();
    return true;
}

void Scheduler::configure(Schedule schedule, Draws draws) {
    Lock lock(mutex_);
    schedule_.store(schedule, std::memory_order_relaxed);
    random_.seed(draws.seed);
    Turns::configure(std::move(draws));
    background_ = all_demanded_ = false;
    able_.clear();
    for (auto& [id, stream] : streams_) make_ready(*stream);
}

StreamPtr Scheduler::create(uint32_t device, bool stops, std::shared_ptr<Group> group, bool legacy) {
    Heap::get().begin_use();
    auto stream = std::make_shared<Stream>();
    stream->device = device;
    stream->stops = stops;
    stream->group = std::move(group);
    stream->legacy = legacy;
    Lock lock(mutex_);
    if (!bell_page_) bell_page_ = std::make_unique<SignalPage>(1);   // here it can be refused
    stream->id = next_stream_++;
    streams_.emplace(stream->id, stream);
    try {
        able_.admit();
        if (stream->group) stream->group->held_up.admit();
    } catch (...) {
        streams_.erase(stream->id);
        throw;
    }
    if (log::wanted()) [[unlikely]] {
        log::write({.kind = log::Kind::stream_made, .stream = stream->id, .a = stream->group ? stream->group->id : 0, .b = legacy});
        stream->logged = true;
    }
    return stream;
}

void Scheduler::refuse_unusable(const Stream& stream) const {
    if (stream.closing || stream.closed)
        throw Refusal{.why = Why::stream_closed, .stream = {.id = stream.id, .allocation_site = stream.site, .closed_site = stream.closed_site},
                      .device = stream.device};
}

Submitted Scheduler::submit(Stream& stream, const Op& op, uint64_t site) {
    Heap::get().check_usable();
    if (Turns::is_on()) [[unlikely]] Turns::point();
    Lock lock(mutex_);
    refuse_unusable(stream);
    return push(lock, stream, op, site);
}

void Scheduler::submit_nothing(const Stream& stream) const {
    Heap::get().check_usable();
    refuse_unusable(stream);
}

namespace {

uint64_t timeout_of(const Op& op) {
    if (op.kind == OpKind::wait || op.kind == OpKind::wait_notify || op.kind == OpKind::stepwise) return op.timeout_ns;
    return op.kind == OpKind::wait_value ? static_cast<const ValueWait*>(op.extra)->timeout_ns : 0;
}

}  // namespace

Submitted Scheduler::push(Lock& lock, Stream& stream, Op op, uint64_t site) {
    const Schedule schedule = this->schedule();
    if (timeout_of(op) != 0 && !stream.has_deadline && stream.deadline_entry.empty()) {
        Stream::Deadlines entry;
        entry.emplace(0, &stream);
        stream.deadline_entry = entry.extract(entry.begin());
    }
    if (stream.group) op.phase = stream.group->enter(stream.legacy);
    Submitted result{.sequence = stream.submitted.load(std::memory_order_relaxed) + 1};
    const bool idle = stream.is_idle() && !stream.cause && (!stream.group || stream.group->may_run(op.phase));
    const bool may_hold_back = log::is_read(log::kChecker) && sources_.may_hold_back(op, schedule == Schedule::seeded);
    if (schedule == Schedule::eager && idle && op.kind <= OpKind::reduce && op.kind != OpKind::copy_2d &&
        op.size <= kAtOnce && !may_hold_back) {
        result.at_once = true;
        if (log::is_read(log::kAnyone)) [[unlikely]] op.logged = log_submitted(stream, op, result.sequence, false);
        stream.submitted.store(result.sequence, std::memory_order_relaxed);
        if (log::is_read(log::kChecker)) [[unlikely]] watch_sources(stream, op, result, false);
        run_at_once(stream, op, site);
        return result;
    }
    try {
        Op& queued = stream.queue.push(op, site);
        if (op.kind == OpKind::notify) add_recorder(stream, queued);
        if (log::is_read(log::kAnyone)) [[unlikely]] {
            const bool runs_now = schedule == Schedule::eager && idle && (op.kind == OpKind::notify || op.kind == OpKind::wait_notify);
            queued.logged = op.logged = log_submitted(stream, op, result.sequence, runs_now);
            if (log::is_read(log::kChecker)) watch_sources(stream, op, result, may_hold_back);
        }
    } catch (const std::bad_alloc&) {
        if (stream.group) stream.group->leave(op.phase, 1);
        throw;
    }
    stream.submitted.store(result.sequence, std::memory_order_relaxed);
    if (schedule != Schedule::eager) {
        note_call();
        ensure_watch();
        ring_before(moved_at_ + kRest);
    }
    // Another process may wait for what it records, and cannot ask.
    const bool asked_elsewhere = (op.kind == OpKind::notify && op.notify->shared()) || op.kind == OpKind::far ||
                                 (op.kind == OpKind::stepwise && static_cast<const Stepwise*>(op.extra)->may_wait());
    if (schedule == Schedule::eager && idle && begins_at_once(op) && !may_hold_back) {
        const StreamPtr held = stream.shared_from_this();
        Leave leave{.single = true};
        start_head(lock, stream, leave);
    }
    if (op.kind == OpKind::far && stream.park == Park::far && stream.posted + 1 == result.sequence) post_far(stream);
    if (asked_elsewhere) let_held_run();
    if (demanding_ != 0 || asked_elsewhere) demand(stream, result.sequence);
    if (demanding_ == 0) all_demanded_ = false;
    make_ready(stream);
    if (schedule == Schedule::seeded && random_() % 4 == 0)
        pump(lock, 1 + static_cast<unsigned>(random_() % kMostStepsBetween), true);
    return result;
}

Mark* Scheduler::record(Stream& stream) {
    Heap::get().check_usable();
    if (Turns::is_on()) [[unlikely]] Turns::point();
    auto* mark = new Mark;
    Lock lock(mutex_);
    try {
        refuse_unusable(stream);
        mark->stream = stream.shared_from_this();
        mark->stream_id = stream.id;
        mark->sequence = stream.submitted.load(std::memory_order_relaxed) + 1;
        mark->hold();
        push(lock, stream, {.kind = OpKind::record, .mark = mark}, 0);
        return mark;
    } catch (...) {
        delete mark;
        throw;
    }
}

Submitted Scheduler::wait(Stream& stream, Mark& mark, uint64_t timeout_ns, uint64_t site, uint64_t only) {
    Heap::get().check_usable();
    if (Turns::is_on()) [[unlikely]] Turns::point();
    Lock lock(mutex_);
    refuse_unusable(stream);
    mark.hold();
    try {
        return push(lock, stream, {.kind = OpKind::wait, .timeout_ns = timeout_ns, .size = only, .mark = &mark}, site);
    } catch (...) {
        mark.drop();
        throw;
    }
}

Submitted Scheduler::call(Stream& stream, CallbackQueue& queue, const HostCall& function, uint64_t site) {
    constexpr uint64_t kNative = uint64_t{1} << 63;   // apart from Python's tokens
    Heap::get().check_usable();
    if (Turns::is_on()) [[unlikely]] Turns::point();
    auto kept = std::make_unique<HostCall>(function);
    Lock lock(mutex_);
    refuse_unusable(stream);
    queue.hold();
    try {
        const uint64_t token = kNative | (stream.submitted.load(std::memory_order_relaxed) + 1);
        const Submitted result = push(lock, stream, {.kind = OpKind::callback, .callbacks = &queue, .call = kept.get(), .value = token}, site);
        (void)kept.release();
        return result;
    } catch (...) {
        queue.drop();
        throw;
    }
}

bool Scheduler::can_run(const Stream& stream) const {
    return stream.active == 0 && !stream.job && stream.park == Park::none && !stream.queue.empty() && !is_held_back(stream) &&
           (schedule() != Schedule::lazy || stream.head() <= stream.demanded);
}

void Scheduler::make_ready(Stream& stream) {
    if (stream.ready || !can_help(stream)) return;
    if (schedule() == Schedule::seeded) {
        able_.add(stream);
        if (!background_) {
            for (HostWaiter* sleeper : sleepers_) {
                sleeper->woken.store(true, std::memory_order_release);
                sleeper->wake.notify_one();
            }
            for (WaitSet* set : wait_sets_) set->ring();
            return;
        }
    }
    (ready_last_ ? ready_last_->ready_next : ready_first_) = stream.shared_from_this();
    ready_last_ = &stream;
    stream.ready = true;
    const uint64_t waiting = ready_count_.fetch_add(1, std::memory_order_relaxed) + 1;
    // An idle worker that was woken for another stream counts as idle until it runs.
    if (waiting > idle_) add_worker();
    if (idle_ != 0) work_.notify_one();
    if (waiting > idle_ || stream.job) wake(stream.waiters);   // who waits for it runs it, or joins in
}

void Scheduler::wake(HostWaiter* waiters) {
    for (HostWaiter* waiter = waiters; waiter; waiter = waiter->next) {
        waiter->woken.store(true, std::memory_order_release);
        waiter->wake.notify_one();
    }
}

// One core is left to the program until it waits.
void Scheduler::add_worker() {
    const unsigned most = ThreadTeam::cores() > 1 ? ThreadTeam::cores() - 1 : 1;
    if (workers_ >= most) return;
    try {
        log::own_thread([this] { serve(); }).detach();
        ++workers_;
    } catch (const std::exception&) {
        // No thread to be had, or no memory for it: who waits for a stream runs it.
    }
}

void Scheduler::serve() {
    begin_own_thread();
    Lock lock(mutex_);
    while (true) {
        if (!ready_first_) {
            ++idle_;
            const bool woken = work_.wait_for(lock, kIdleLife, [this] { return ready_first_ != nullptr; });
            --idle_;
            if (!woken) break;
        }
        const StreamPtr stream = std::move(ready_first_);
        ready_first_ = std::move(stream->ready_next);
        if (!ready_first_) ready_last_ = nullptr;
        stream->ready = false;
        ready_count_.fetch_sub(1, std::memory_order_relaxed);
        run_slice(lock, *stream, {.at = Clock::now() + kWorkerSlice, .others = &ready_count_});
    }
    --workers_;
}

void Scheduler::hold_back(Stream& stream, uint64_t sequence) {
    if (stream.held != 0) return;
    held_.push_back(stream.shared_from_this());
    stream.held = sequence;
    if (schedule() != Schedule::eager) return;   // the rest ends it
    if (held_until_ == UINT64_MAX) held_until_ = now_ns() + hold_ns_;
    ensure_watch();
    ring_before(held_until_);
}

void Scheduler::let_held_run() {
    if (held_.empty()) return;
    hold_ns_ = std::min(hold_ns_ + hold_ns_ / 8, kLongestHold);
    held_until_ = UINT64_MAX;
    for (const StreamPtr& each : std::exchange(held_, {})) {
        each->held = 0;
        make_ready(*each);
    }
}

void Scheduler::demand(Stream& stream, uint64_t sequence) {
    if (schedule() != Schedule::lazy) return;
    Stream* at = &stream;
    while (at && at->demanded < sequence) {
        at->demanded = sequence;
        make_ready(*at);
        if (at->park != Park::mark) return;
        const Mark& mark = *at->queue.front().mark;
        sequence = mark.sequence;
        at = mark.stream.get();
    }
}

void Scheduler::demand_all() {
    if (schedule() != Schedule::lazy || std::exchange(all_demanded_, true)) return;
    for (auto& [id, stream] : streams_) demand(*stream, stream->submitted.load(std::memory_order_relaxed));
}

void Scheduler::set_stops(Stream& stream, bool stops) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    stream.stops = stops;
}

void Scheduler::set_abort_flag(Stream& stream, std::shared_ptr<AbortFlag> flag) {
    Lock lock(mutex_);
    stream.abort_flag = std::move(flag);
}

bool Scheduler::begin_callback(Stream& stream, uint64_t token) {
    Lock lock(mutex_);
    if (stream.park != Park::callback || stream.queue.front().value != token) return false;
    const auto this_thread = std::this_thread::get_id();
    stream.callback_thread = this_thread;
    CallbackQueue& queue = *stream.queue.front().callbacks;
    queue.shared |= queue.server != std::thread::id{} && queue.server != this_thread;
    queue.server = this_thread;
    ++queue.running;
    if (stream.queue.front().logged != Logged::no) [[unlikely]] {
        const log::ByNoLine of_the_program;
        sources_.known(stream.id, stream.head() - 1);
        release_sources();
        log::write({.kind = log::Kind::callback_begin, .stream = stream.id, .sequence = stream.head()});
    }
    return true;
}

void Scheduler::finish_callback(Stream& stream, uint64_t token, bool raised) {
    if (Heap::get().is_forked()) return;
    Lock lock(mutex_);
    if (stream.park != Park::callback || stream.callback_thread == std::thread::id{}) return;
    const StreamPtr held = stream.shared_from_this();
    unpark(stream);
    stream.callback_thread = {};
    const Op& op = stream.queue.front();
    --op.callbacks->running;
    if (op.logged != Logged::no) [[unlikely]] log::write({.kind = log::Kind::callback_end, .stream = stream.id, .sequence = stream.head()});
    if (raised) fail(stream, op, {.why = Why::callback_failed, .token = token, .device = stream.device});
    finish_head(lock, stream);
    Leave leave{.single = true};
    // Here and now: a worker would be woken, and would wake this thread for the next call.
    while (schedule() == Schedule::eager && can_run(stream) && is_control(stream.queue.front().kind) && start_head(lock, stream, leave)) {
    }
    make_ready(stream);
}

bool Scheduler::is_at_rest() {
    const Lock lock(mutex_);
    return now_ns() >= moved_at_ + kRest;
}

uint64_t Scheduler::notify_recorded(Notify& notify) {
    Heap::get().check_usable();
    if (Turns::is_on()) [[unlikely]] Turns::point();
    const bool is_shared = notify.shared() != nullptr;   // it stays so
    Lock lock(mutex_, std::defer_lock);
    if (!is_shared) lock.lock();   // it may be about to be shared
    bool wake;
    uint64_t number;
    if (log::is_logging()) [[unlikely]] {
        log::Writing writing(log::wanted());
        number = notify.record(wake);
        if (number != 0) log_recorded(writing, notify, number);
    } else {
        number = notify.record(wake);
    }
    if (number == 0) throw not_recorded(notify);
    if (!wake) return number;
    if (is_shared) lock.lock();
    wake_waiters(notify);
    return number;
}

void Scheduler::was_recorded(Notify& notify) {
    Lock lock(mutex_);
    wake_waiters(notify);
}

void Scheduler::share(Notify& notify, std::shared_ptr<SharedSignal> with, bool keep, uint32_t index) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    notify.share(std::move(with), keep, index);
    each_parked_on(notify.line, [this](Stream& stream) { count_shared_wait(stream); });
    demand_all();   // what is queued may record it
    ++hope_;
}

void Scheduler::use_bell(std::shared_ptr<Ledger> node) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    if (node == bell_node_) return;   // also when there was none
    if (!bell_page_) bell_page_ = std::make_unique<SignalPage>(1);
    wake_watch();   // who sleeps there moves, once this lock is free
    bell_node_ = std::move(node);
    if (bell_node_ && schedule() == Schedule::seeded) ensure_watch();   // others wait for what nobody here asks for
}

void Scheduler::abandon(Notify& notify) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    notify.abandoned.store(true, std::memory_order_release);
    each_parked_on(notify.line, [this](Stream& stream) { count_shared_wait(stream); });
}

void Scheduler::forsake(Notify& notify, uint64_t lost) {
    Lock lock(mutex_);
    next_pulse_ = 0;
    forsake_locked(notify, lost);
    each_parked_on(notify.line, [this](Stream& stream) { count_shared_wait(stream); });
}

void Scheduler::forsake_locked(Notify& notify, uint64_t lost) {
    notify.lost_to.store(lost, std::memory_order_relaxed);
    notify.promised.store(false, std::memory_order_relaxed);
    notify.abandoned.store(true, std::memory_order_relaxed);
    ++hope_;
}

void Scheduler::promise(Notify& notify) {
    Heap::get().check_usable();
    Lock lock(mutex_);
    notify.promised.store(true, std::memory_order_relaxed);
    ++hope_;
}

void Scheduler::reset(Notify& notify) {
    Heap::get().check_usable();
    Lock lock(mutex_);   // streams consume under it
    notify.reset();
    if (!log::wanted()) return;
    const auto [bank, line] = line_address(notify);
    log::write({.kind = log::Kind::notify_reset, .a = bank, .b = line, .c = notify.signal().consumed.load(std::memory_order_relaxed)});
}

void Scheduler::release(void* keep) {
    or_lose([&] { released_.push_back(keep); });
    has_released_.store(true, std::memory_order_relaxed);
}

void Scheduler::watch_sources(Stream& stream, const Op& op, Submitted& submitted, bool may_hold_back) {
    const HostSources::Watched watched = sources_.submitted(stream, op, submitted.sequence, submitted.at_once, may_hold_back);
    submitted.watches = watched.references;
    if (watched.is_held_back) or_lose([&] { hold_back(stream, submitted.sequence); });
    release_sources();
}

void Scheduler::look_at_sources(uint64_t stream, uint64_t sequence) {
    if (sources_.is_empty()) return;
    Lock lock(mutex_);
    sources_.known(stream, sequence);
    release_sources();
}

void Scheduler::release_sources() {
    for (void* keep : sources_.let_go) release(keep);
    sources_.let_go.clear();
}

void Scheduler::release_token(uint64_t token) {
    or_lose([&] { released_tokens_.push_back(token); });
    has_released_.store(true, std::memory_order_relaxed);
}

void Scheduler::take_released(std::vector<void*>& objects, std::vector<uint64_t>& tokens) {
    Lock lock(mutex_);
    objects.swap(released_);
    tokens.swap(released_tokens_);
    has_released_.store(false, std::memory_order_relaxed);
}

}  // namespace peerlane
