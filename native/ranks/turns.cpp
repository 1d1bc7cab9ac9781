#include "ranks/turns.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "memory/heap.h"
#include "stream/stream.h"

namespace peerlane {

namespace {

constexpr uint64_t kMilli = 1'000'000;
constexpr uint64_t kSpin = 30'000, kSlice = 20 * kMilli, kBetweenSignals = 100 * kMilli;
constexpr uint64_t kStanding = 100 * kMilli;      // of a thread's clock, until it gives up its turn
constexpr uint64_t kPolling = 2'000 * kMilli;     // without a step, with a core, until it gives up its turn, whatever it does
constexpr uint64_t kInside = 50;                  // times as long, while it waits for another process's answer
constexpr uint64_t kLongest = 60'000 * kMilli;    // that a rank waits for its turn
constexpr uint64_t kStopped = 2'000 * kMilli;     // without a beat of the holder's process
constexpr uint64_t kMostDoublings = 5;            // of the steps of others until a blocked rank looks again
constexpr unsigned kIdlePause = 200;              // microseconds
constexpr uint64_t kTurnsInARow = 4;              // on the average: to wake another thread costs more than most steps
constexpr uint64_t kLongestStreak = 256;          // of turns of the rank with the highest priority

Turns::Hooks hooks{};
Draws& drawn = *new Draws;   // destructors of the program still call
std::atomic<uint64_t> process_steps{0};

struct Joined {
    std::mutex mutex;
    std::vector<std::weak_ptr<Turns>> all;
};
Joined& joined() {
    static auto* all = new Joined;
    return *all;
}

struct OfThread {
    std::shared_ptr<Turns> turns;
    unsigned suspended = 0;
    ~OfThread() {
        if (turns) turns->leave();
    }
};
thread_local OfThread of_thread;

// A file of a thread of this process in /proc; empty if it cannot be read.
std::string task_file(int32_t tid, const char* name) {
    char content[512];
    const std::string path = "/proc/self/task/" + std::to_string(tid) + "/" + name;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    const ssize_t n = read(file, content, sizeof content);
    close(file);
    return {content, static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

// Whether a thread has a core or waits for one, or for the disk.
bool is_running(int32_t tid) {
    const std::string content = task_file(tid, "stat");
    const size_t behind = content.rfind(") ");
    return behind != std::string::npos && (content[behind + 2] == 'R' || content[behind + 2] == 'D');
}

// How long a thread has waited for a core until now.
uint64_t starved_ns(int32_t tid) {
    uint64_t ran = 0, starved = 0;
    return std::sscanf(task_file(tid, "schedstat").c_str(), "%" SCNu64 " %" SCNu64, &ran, &starved) == 2 ? starved : 0;
}

}  // namespace

uint64_t Draws::number(uint64_t a, uint64_t b) const {   // splitmix64
    uint64_t x = seed + 0x9E3779B97F4A7C15 * (a + 1) + 0xD1B54A32D192ED03 * b;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

uint64_t Draws::change_at(uint64_t step) const {
    const auto at = std::lower_bound(changes.begin(), changes.end(), step);
    return at != changes.end() && *at == step ? static_cast<uint64_t>(at - changes.begin()) + 1 : 0;
}

std::atomic<uint64_t> Turns::on_{0};

void Turns::configure(Draws draws) { drawn = std::move(draws); }
const Draws& Turns::draws() { return drawn; }
void Turns::use(Hooks with) { hooks = with; }

Turns::Turns(std::shared_ptr<SharedSignal> bank, std::shared_ptr<const Members> members, uint32_t rank, uint32_t ranks, uint32_t first)
    : bank_(std::move(bank)), members_(std::move(members)), rank_(rank), ranks_(ranks), first_(first), pid_(getpid()) {
    static_assert(sizeof(Line) <= sizeof(SignalLine) / 2 && sizeof(Header) <= sizeof(SignalLine) / 2);
}

void Turns::join(const std::shared_ptr<Turns>& turns, uint64_t nanoseconds) {
    if (of_thread.turns && of_thread.turns->joined_) return turns->decline();
    of_thread.turns = turns;
    turns->joined_ = true;
    turns->thread_ = pthread_self();
    turns->tid_ = static_cast<int32_t>(syscall(SYS_gettid));   // gettid() is newer than the glibc of the wheels
    {
        std::lock_guard lock(joined().mutex);
        std::erase_if(joined().all, [](const auto& each) { return each.expired(); });
        joined().all.push_back(turns);
    }
    on_.fetch_add(1, std::memory_order_relaxed);
    turns->line(turns->rank_).state.store(in, std::memory_order_release);
    if (!turns->await(now_ns() + nanoseconds)) turns->leave();
}

void Turns::decline() { line(rank_).state.store(declined, std::memory_order_release); }

void Turns::leave() {
    if (getpid() != pid_) return;
    std::lock_guard lock(mutex_);
    if (!joined_.exchange(false)) return;
    if (holds()) {
        line(rank_).state.store(leaving, std::memory_order_release);   // it is not drawn, and nobody takes its turn meanwhile
        header().progress.fetch_add(1, std::memory_order_relaxed);
        give_to(draw());
    }
    line(rank_).state.store(left, std::memory_order_release);
    on_.fetch_sub(1, std::memory_order_relaxed);
}

namespace {

Turns* current() {
    OfThread& mine = of_thread;
    return mine.turns && mine.suspended == 0 ? mine.turns.get() : nullptr;
}

}  // namespace

bool Turns::is_participant() {
    const Turns* const mine = current();
    return mine && mine->joined_ && getpid() == mine->pid_;
}

bool Turns::has_turn() {
    const Turns* const mine = current();
    return mine && mine->holds();
}

void Turns::give_to(uint64_t holder) {
    header().beat_ns.store(now_ns(), std::memory_order_relaxed);
    header().holder.store(holder, std::memory_order_release);
    if (holder != 0 && holder <= ranks_ && holder - 1 != rank_) line(static_cast<uint32_t>(holder - 1)).bell.ring();
}

// By the holder: the rank that is next, plus one.
uint64_t Turns::draw() {
    while (true) {
        const uint64_t step = header().steps.fetch_add(1, std::memory_order_relaxed) + 1;
        const uint64_t progress = header().progress.load(std::memory_order_relaxed);
        const uint64_t signals = header().signals.load(std::memory_order_relaxed);
        std::vector<uint32_t> able, blocked;
        for (uint32_t rank = 0; rank < ranks_; ++rank) {
            if (state(rank) != in) continue;
            const Line& at = line(rank);
            const bool is_blocked = at.blocked_until.load(std::memory_order_relaxed) > progress &&
                                    at.signals.load(std::memory_order_relaxed) == signals;
            (is_blocked ? blocked : able).push_back(rank);
        }
        const std::vector<uint32_t>& from = able.empty() ? blocked : able;
        if (from.empty()) return 0;
        if (!drawn.has_priorities || able.empty()) {
            const auto last = static_cast<uint32_t>(header().streak.load(std::memory_order_relaxed) - 1);
            const bool stays = drawn.number(step, 2) % kTurnsInARow != 0 && std::find(able.begin(), able.end(), last) != able.end();
            const uint32_t next = stays ? last : from[drawn.number(step, 1) % from.size()];
            header().streak.store(uint64_t{next} + 1, std::memory_order_relaxed);
            return next + 1;
        }
        const auto priority = [&](uint32_t rank) {
            const uint64_t fallen = line(rank).priority.load(std::memory_order_relaxed);
            return fallen != 0 ? fallen : drawn.priority(rank);
        };
        const uint32_t best = *std::max_element(from.begin(), from.end(), [&](uint32_t a, uint32_t b) { return priority(a) < priority(b); });
        const bool is_to_fall = streak_ends(best, from.size() == 1) | (drawn.change_at(step) != 0);
        if (!is_to_fall) return best + 1;
        const uint64_t falls = uint64_t{header().falls.fetch_add(1, std::memory_order_relaxed)} + 1;
        line(best).priority.store(Draws::kFallen - std::min(falls, Draws::kFallen - 1), std::memory_order_relaxed);
    }
}

// A rank that was drawn so often in a row may be polling memory that another rank writes.
bool Turns::streak_ends(uint32_t rank, bool is_alone) {
    const uint64_t before = header().streak.load(std::memory_order_relaxed);
    const uint64_t now = is_alone || (before & UINT32_MAX) != rank + 1 ? rank + 1 : before + (uint64_t{1} << 32);
    const bool ends = now >> 32 >= kLongestStreak;
    header().streak.store(ends ? 0 : now, std::memory_order_relaxed);
    return ends;
}

void Turns::pass(bool blocked) {
    bool is_idle = false;
    {
        std::lock_guard lock(mutex_);
        if (!holds()) return;
        const uint64_t progress = header().progress.load(std::memory_order_relaxed);
        if (blocked) {
            Line& mine = line(rank_);
            const uint64_t looks = std::min(mine.looks.load(std::memory_order_relaxed), kMostDoublings);
            mine.looks.store(looks + 1, std::memory_order_relaxed);
            mine.blocked_until.store(progress + (uint64_t{1} << looks), std::memory_order_relaxed);
            mine.signals.store(header().signals.load(std::memory_order_relaxed), std::memory_order_relaxed);
            is_idle = header().idle.fetch_add(1, std::memory_order_relaxed) > 2 * ranks_;
        } else {
            line(rank_).looks.store(0, std::memory_order_relaxed);
            line(rank_).blocked_until.store(0, std::memory_order_relaxed);
            header().progress.store(progress + 1, std::memory_order_relaxed);
            header().idle.store(0, std::memory_order_relaxed);
        }
        if (!is_idle) return give_to(draw());
    }
    usleep(kIdlePause);   // all wait
    std::lock_guard lock(mutex_);
    if (holds()) give_to(draw());
}

bool Turns::is_gone(uint32_t rank) const {
    const State seen = state(rank);
    return (seen != in && seen != leaving) || (members_ && members_->has_ended(rank));
}

// The holder has ended, or nobody has the turn and somebody may take it.
void Turns::rescue() {
    uint64_t holder = header().holder.load(std::memory_order_acquire);
    if (holder == rank_ + 1 || state(rank_) != in) return;
    const uint64_t beat = header().beat_ns.load(std::memory_order_relaxed), now = now_ns();
    const bool is_stopped = beat < now && now - beat > kStopped;
    if (holder != 0) {
        const auto rank = static_cast<uint32_t>(holder - 1);
        if (holder <= ranks_ && !is_stopped && !is_gone(rank)) return;
        if (holder <= ranks_) {
            uint64_t before = in;
            line(rank).state.compare_exchange_strong(before, is_gone(rank) ? left : away, std::memory_order_acq_rel);
            if (is_stopped && (before == in || before == leaving)) mark_group(stopped, rank);
        }
    } else {
        for (uint32_t rank = 0; rank < ranks_; ++rank) {
            if (members_ && members_->has_ended(rank)) line(rank).state.store(left, std::memory_order_release);
            if (state(rank) == absent) return;
        }
    }
    header().beat_ns.store(now, std::memory_order_relaxed);   // before the others see the new holder
    if (!header().holder.compare_exchange_strong(holder, rank_ + 1, std::memory_order_acq_rel)) return;
    std::lock_guard lock(mutex_);
    if (holds()) give_to(draw());
}

bool Turns::await_slice(uint64_t until) {
    const uint64_t start = now_ns();
    uint64_t now = start;
    Doorbell& bell = line(rank_).bell;
    while (true) {
        const uint32_t seen = bell.rings.load(std::memory_order_acquire);
        return_if_away();   // others may have taken its process for a stopped one
        if (holds()) return true;
        if (header().holder.load(std::memory_order_acquire) == 0) rescue();
        if (holds()) return true;
        if (now >= until) return false;
        if (now - start < kSpin) {
            sched_yield();
        } else {
            bell.sleep(seen, std::min(until - now, header().holder.load(std::memory_order_relaxed) == 0 ? kMilli : kSlice));
            rescue();
        }
        now = now_ns();
    }
}

bool Turns::await(uint64_t until) {
    if (holds()) return true;
    void* const state = hooks.release ? hooks.release() : nullptr;
    const bool has_turn = await_slice(until);
    if (state) hooks.restore(state);
    return has_turn;
}

void Turns::return_if_away() {
    if (state(rank_) == away) line(rank_).state.store(in, std::memory_order_release);
}

bool Turns::take(bool blocked, uint64_t until) {
    return_if_away();
    pass(blocked);
    return await(until);
}

void Turns::point() {
    Turns* const mine = current();
    if (!mine || !is_participant()) return;
    const uint64_t limit = now_ns() + kLongest;
    if (mine->take(false, now_ns() + kBetweenSignals)) return;
    while (now_ns() < limit) {
        if (hooks.release) {
            if (void* const held = hooks.release()) {
                hooks.restore(held);
                hooks.check();
            }
        }
        if (mine->await(now_ns() + kBetweenSignals)) return;
    }
    mine->line(mine->rank_).state.store(away, std::memory_order_release);
    mine->mark_group(took_long, mine->rank_);
}

void Turns::quiet_point() noexcept {
    Turns* const mine = current();
    if (!mine || !is_participant() || mine->take(false, now_ns() + kLongest)) return;
    mine->line(mine->rank_).state.store(away, std::memory_order_release);
    mine->mark_group(took_long, mine->rank_);
}

bool Turns::step(uint64_t until) { return current()->take(false, until); }
bool Turns::blocked(uint64_t until) { return current()->take(true, until); }
bool Turns::await_turn(uint64_t until) { return current()->await(until); }

void Turns::regain() {
    Turns* const mine = current();
    if (mine && is_participant() && !mine->await(now_ns() + kLongest)) mine->mark_group(took_long, mine->rank_);
}

void Turns::signal() {
    if (Turns* const mine = current()) mine->header().signals.fetch_add(1, std::memory_order_relaxed);
}

void Turns::go_inside() {
    if (Turns* const mine = of_thread.turns.get()) mine->inside_.fetch_add(1, std::memory_order_relaxed);
}

void Turns::come_out() {
    if (Turns* const mine = of_thread.turns.get()) mine->inside_.fetch_sub(1, std::memory_order_relaxed);
    signal();   // the answer may have reached other ranks, too
}

void Turns::mark_group(Why why, uint32_t rank) {
    uint64_t none = 0;
    header().why.compare_exchange_strong(none, why | uint64_t{rank} << 8, std::memory_order_acq_rel);
}

void Turns::mark(Why why) {
    for (const auto& each : of_process())
        if (each->state(each->rank_) == in) each->mark_group(why, each->rank_);
}

std::vector<std::shared_ptr<Turns>> Turns::of_process() {
    std::vector<std::shared_ptr<Turns>> turns;
    or_lose([&] {
        std::lock_guard lock(joined().mutex);
        for (const auto& each : joined().all)
            if (auto living = each.lock(); living && living->joined_) turns.push_back(std::move(living));
    });
    return turns;
}

bool Turns::any_in_process() {
    if (!is_on()) return false;
    for (const auto& each : of_process())
        if (each->state(each->rank_) != away) return true;
    return false;
}

bool Turns::process_awaits_turn() {
    bool waits = false;
    for (const auto& each : of_process()) {
        if (each->holds()) return false;
        waits |= each->header().holder.load(std::memory_order_acquire) != 0;
    }
    return waits;
}

void Turns::look_at_clock() {
    const auto stands_since = [this](uint64_t now) {
        timespec spent{};
        clockid_t clock;
        if (state(rank_) != in || !holds() || pthread_getcpuclockid(thread_, &clock) != 0) {
            clock_step_ = UINT64_MAX;
            return stepped_at_ = now;
        }
        clock_gettime(clock, &spent);
        const uint64_t spent_ns = static_cast<uint64_t>(spent.tv_sec) * 1000 * kMilli + static_cast<uint64_t>(spent.tv_nsec);
        const uint64_t step = header().steps.load(std::memory_order_relaxed);
        if (std::exchange(clock_step_, step) != step) {
            stepped_at_ = now;
            starved_ = starved_ns(tid_);
        }
        if (std::exchange(clock_, spent_ns) != spent_ns || stepped_at_ == now) return now;
        return stood_since_;
    };
    std::lock_guard lock(mutex_);
    const uint64_t now = now_ns();
    if (!joined_) return;
    if (holds()) header().beat_ns.store(now, std::memory_order_relaxed);
    stood_since_ = stands_since(now);
    const uint64_t patience = inside_.load(std::memory_order_relaxed) != 0 ? kInside * kStanding : kStanding;
    const bool sleeps = now - stood_since_ >= patience && !is_running(tid_);
    // It may poll memory that another rank's step writes.  Time without a core does not count: a rank may compute as long.
    if (!sleeps && (now - stepped_at_ < kPolling || now - stepped_at_ - (starved_ns(tid_) - starved_) < kPolling)) return;
    line(rank_).state.store(away, std::memory_order_release);
    mark_group(sleeps ? slept : polled, rank_);
    give_to(draw());
}

void Turns::suspend() { ++of_thread.suspended; }
void Turns::resume() { --of_thread.suspended; }

uint64_t Turns::next_step() {
    const OfThread& mine = of_thread;
    if (is_participant()) return mine.turns->header().steps.fetch_add(1, std::memory_order_relaxed) + 1;
    return process_steps.fetch_add(1, std::memory_order_relaxed) + 1;
}

uint64_t Turns::steps() const { return header().steps.load(std::memory_order_relaxed); }
uint64_t Turns::own_steps() { return process_steps.load(std::memory_order_relaxed); }

uint64_t Turns::why() const {
    const uint64_t reason = header().why.load(std::memory_order_acquire);
    for (uint32_t rank = 0; reason == repeats && joined_ && rank < ranks_; ++rank)
        if (state(rank) == declined) return elsewhere | uint64_t{rank} << 8;
    return reason;
}

}  // namespace peerlane
