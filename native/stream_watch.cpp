// The doorbell's thread: wakes streams for records of other processes, and ends waits at their deadlines.
#include <thread>

#include "scheduler.h"
#include "thread_team.h"

namespace peerlane {

namespace {
constexpr uint64_t kLongestSleep = 1'000'000'000;
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
        uint64_t span = kLongestSleep;
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

void Scheduler::expire(Lock& lock, Stream& stream) {
    const Op& op = stream.queue.front();
    unpark(stream);
    const bool notify = op.kind == OpKind::wait_notify;
    fail(stream, op, stream.head(),
         {.why = Why::wait_timeout, .size = op.timeout_ns, .id = notify ? op.notify->id : op.mark->stream_id,
          .device = stream.device});
    finish_head(lock, stream);
    make_ready(stream);
}

}  // namespace peerlane
