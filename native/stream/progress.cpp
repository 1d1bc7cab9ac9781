// Whether anything of this process can run, for who asks on behalf of a group of ranks.
#include <algorithm>
#include <bit>

#include "share/shared_signal.h"
#include "stream/logged.h"
#include "stream/scheduler.h"

namespace peerlane {

namespace {

constexpr uint64_t kPutOff = 1'000'000'000;
constexpr auto kSoon = std::chrono::seconds(2);   // a wait that ends until then is left to its time-out
constexpr uint64_t kNetNs = static_cast<uint64_t>(Deadline::kNetSeconds) * 1'000'000'000;

uint64_t mixed(uint64_t into, uint64_t value) { return (into ^ value) * 0x9E3779B97F4A7C15; }

// Only records of processes that are known can end such a wait.
bool is_between_ranks(const Notify& notify) {
    const SharedSignal* const with = notify.shared();
    if (notify.kind == NotifyKind::level || (with && with->bank() == 0)) return false;
    return !notify.promised.load(std::memory_order_relaxed) && !notify.abandoned.load(std::memory_order_relaxed) &&
           !notify.is_recorded();
}

// Only this process can write the word for which the operation waits, and has not written what is wanted.
bool is_own_word(const Op& op) {
    const Extent* const extent = op.dst_extent;   // pinned
    if (!extent || !extent->block || (extent->mapping && extent->mapping->lease)) return false;
    const Block& block = *extent->block;
    if (block.origin || block.holders.load(std::memory_order_acquire) >> 32 != 0 || block.is_exported_as_file || block.is_read_elsewhere) return false;
    Refusal why{};
    return look_at_word(op, why) == Word::other;
}

// The thread that runs the callback, or that would run it after its present one, waits itself.
bool is_callback_blocked(const Stream& stream, const std::vector<HostWaiter*>& hosts) {
    const CallbackQueue& queue = *stream.queue.front().callbacks;
    const bool is_next = stream.callback_thread == std::thread::id{} && !queue.shared && queue.running != 0;
    const std::thread::id thread = is_next ? queue.server : stream.callback_thread;
    static_assert(sizeof thread == sizeof(HostWaiter::thread));
    return std::any_of(hosts.begin(), hosts.end(),
                       [&](const HostWaiter* host) { return host->thread == std::bit_cast<uint64_t>(thread); });
}

}  // namespace

uint64_t Scheduler::progress_token(bool others_wait) const {
    if ((hosts_.empty() || demanding_ == 0) && !others_wait) return 0;
    if (held_until_ != UINT64_MAX) return 0;
    const auto soon = Clock::now() + kSoon;
    const auto soon_ns = static_cast<uint64_t>(soon.time_since_epoch().count());
    uint64_t token = mixed(1, hope_);   // it counts whatever lets a parked stream go on
    for (const HostWaiter* host : hosts_) {
        if (host->deadline < (host->is_net ? soon : Clock::time_point::max())) return 0;   // the program goes on after it
        token = mixed(token, host->number);
    }
    for (const auto& [id, stream] : streams_) {
        if (stream->active != 0 || stream->job || can_help(*stream)) return 0;
        if (stream->queue.empty()) continue;
        // A wait for a word has its time-out elsewhere.
        if (stream->has_deadline && ((stream->park != Park::value && stream->queue.front().timeout_ns < kNetNs) || stream->timed_until < soon_ns)) return 0;
        // Under lazy nobody has asked for what is not parked.
        const bool is_still = stream->park == Park::none || stream->park == Park::mark || stream->park == Park::phase ||
                              (stream->park == Park::callback && is_callback_blocked(*stream, hosts_)) ||
                              (stream->park == Park::value && !stream->has_deadline && is_own_word(stream->queue.front())) ||
                              (stream->park == Park::notify && is_between_ranks(*stream->queue.front().notify));
        if (!is_still) return 0;
    }
    return token | 1;
}

NoProgress Scheduler::no_progress(bool others_wait) {
    Lock lock(mutex_);
    NoProgress report{.token = progress_token(others_wait)};
    if (report.token == 0) return report;
    for (const HostWaiter* host : hosts_) report.hosts.push_back({host->thread, host->stream});
    for (const auto& [id, stream] : streams_) {
        if (stream->park != Park::mark && stream->park != Park::notify) continue;
        const Op& op = stream->queue.front();
        const bool is_mark = stream->park == Park::mark;
        report.parked.push_back({id, stream->head(), stream->queue.site(0), stream->park,
                                is_mark ? op.mark->stream_id : op.notify->id, is_mark || !op.notify->shared()});
    }
    return report;
}

void Scheduler::put_off_losses() {
    Lock lock(mutex_);
    next_pulse_ = now_ns() + kPutOff;
}

void Scheduler::log_waits_in_vain(uint64_t token, bool others_wait) {
    Lock lock(mutex_);
    if (token == 0 || token != progress_token(others_wait) || std::exchange(logged_in_vain_, token) == token) return;
    for (const auto& [number, stream] : streams_)
        if (stream->park == Park::notify) log_in_vain(*stream, stream->head());
}

bool Scheduler::end_waits(uint64_t token, uint64_t id, bool others_wait) {
    log_waits_in_vain(token, others_wait);
    Lock lock(mutex_);
    if (token == 0 || token != progress_token(others_wait)) return false;
    std::vector<StreamPtr> parked;
    for (const auto& [number, stream] : streams_)
        if (stream->park == Park::notify) parked.push_back(stream);
    for (const StreamPtr& stream : parked)   // one may end another's wait
        if (stream->park == Park::notify) fail_parked(lock, *stream, {.why = Why::no_progress, .occasion = id, .device = stream->device});
    return true;
}

bool Scheduler::refuse_waits(uint64_t token, uint64_t id) {
    Lock lock(mutex_);
    if (token == 0 || token != progress_token(false)) return false;
    for (HostWaiter* host : hosts_) {
        host->refused = id;
        host->woken.store(true, std::memory_order_release);
        host->wake.notify_one();
    }
    return true;
}

}  // namespace peerlane
