// The doorbell's thread: wakes streams for records of other processes, and ends waits at their deadlines.
#include <thread>

#include "fault_guard.h"
#include "scheduler.h"
#include "thread_team.h"

namespace peerlane {

namespace {
constexpr uint64_t kLongestSleep = 1'000'000'000;
constexpr uint64_t kFirstLook = 20'000, kSlowestLook = 1'000'000;   // ns between two looks at words of memory
}

// All that wait for the line look again; who is not served announces himself anew.
void Scheduler::wake_notify(SignalLine& line) {
    const auto [first, last] = parked_on_lines_.equal_range(&line);
    if (first == last) return;
    line.word.fetch_and(~SignalLine::kWaiter, std::memory_order_acq_rel);
    std::vector<std::pair<StreamPtr, uint64_t>> parked;
    for (auto entry = first; entry != last; ++entry) parked.push_back(entry->second);
    parked_on_lines_.erase(first, last);
    wake_all(parked);
}

void Scheduler::ensure_watch() {
    if (!bell_page_) bell_page_ = std::make_unique<SignalPage>(1);
    if (watching_) {
        bell_page_->bell().ring();   // there may be an earlier deadline than it sleeps for
        return;
    }
    std::thread([this] { watch(); }).detach();
    watching_ = true;
}

Doorbell& Scheduler::bell() {
    Lock lock(mutex_);
    ensure_watch();
    return bell_page_->bell();
}

void Scheduler::watch() {
    leave_signals_to_others();
    Lock lock(mutex_);
    Doorbell& bell = bell_page_->bell();
    while (true) {
        const uint32_t seen = bell.rings.load(std::memory_order_acquire);
        for (auto entry = parked_on_lines_.begin(); entry != parked_on_lines_.end();) {
            SignalLine& line = *entry->first;
            entry = parked_on_lines_.upper_bound(&line);
            if (line.recorded() != line.consumed.load(std::memory_order_relaxed)) wake_notify(line);
        }
        uint64_t span = look_at_values(lock);
        const auto now = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
        while (!deadlines_.empty()) {
            const auto [at, entry] = *deadlines_.begin();
            if (at > now) {
                span = std::min(span, at - now);
                break;
            }
            deadlines_.erase(deadlines_.begin());
            if (entry.first->ticket == entry.second) expire(lock, *entry.first);
        }
        lock.unlock();
        bell.sleep(seen, span);
        lock.lock();
    }
}

bool has_value(const Op& op) {
    const auto& wanted = static_cast<const ValueWait&>(*op.extra);
    uint64_t word = 0;
    FaultGuard guard;
    const bool wide = op.width == 8;
    // No page: what does not hold anything does not hold what is wanted.
    return guarded(guard, [&] {
               word = wide ? std::atomic_ref(*reinterpret_cast<uint64_t*>(op.dst)).load(std::memory_order_acquire)
                           : std::atomic_ref(*reinterpret_cast<uint32_t*>(op.dst)).load(std::memory_order_acquire);
           }) && wanted.is_satisfied(word);
}

// Nobody rings for plain memory: look, less and less often while nothing changes.
uint64_t Scheduler::look_at_values(Lock& lock) {
    if (parked_on_values_.empty()) return kLongestSleep;
    bool changed = false;
    for (auto& entry : std::exchange(parked_on_values_, {})) {
        if (entry.first->ticket != entry.second) continue;
        Stream& stream = *entry.first;
        if (!has_value(stream.queue.front())) {
            parked_on_values_.push_back(entry);
            continue;
        }
        changed = true;
        unpark(stream);
        finish_head(lock, stream);
        make_ready(stream);
    }
    look_ns_ = changed ? kFirstLook : std::min(look_ns_ * 2, kSlowestLook);
    return parked_on_values_.empty() ? kLongestSleep : look_ns_;
}

void Scheduler::expire(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    unpark(stream);
    const uint64_t span = op.kind == OpKind::wait_value ? static_cast<const ValueWait*>(op.extra)->timeout_ns : op.timeout_ns;
    fail(stream, op, stream.head(), {.why = Why::wait_timeout, .size = span, .device = stream.device});
    finish_head(lock, stream);
    make_ready(stream);
}

}  // namespace peerlane
