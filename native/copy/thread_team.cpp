#include "copy/thread_team.h"

#include <chrono>
#include <sched.h>
#include <thread>

#include "log/threads.h"
#include "memory/threads.h"

namespace peerlane {

namespace {
constexpr auto kTeamIdleLife = std::chrono::seconds(5);
constexpr auto kDoneCheck = std::chrono::seconds(1);
constexpr auto kSpinTime = std::chrono::microseconds(50);   // about as long as a wake-up takes, and the copy of a MiB

// Who waits for the core goes first.
template <class Look>
void spin_until(const Look& look) {
    for (const auto until = std::chrono::steady_clock::now() + kSpinTime; !look() && std::chrono::steady_clock::now() < until;) sched_yield();
}
}  // namespace

namespace {
std::atomic<ThreadTeam*>& present() {
    static auto* team = new std::atomic(new ThreadTeam);
    return *team;
}
}  // namespace

ThreadTeam& ThreadTeam::get() { return *present().load(std::memory_order_acquire); }

void ThreadTeam::begin_anew() { present().store(new ThreadTeam, std::memory_order_release); }

unsigned ThreadTeam::cores() {
    static const unsigned count = [] {
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
        const unsigned all = std::thread::hardware_concurrency();
        return all ? all : 1u;
    }();
    return count;
}

void ThreadTeam::run(unsigned helpers, const std::function<void(bool)>& work) {
    if (helpers == 0 || taken_.exchange(true, std::memory_order_acquire)) {
        work(true);
        return;
    }
    {
        std::lock_guard lock(mutex_);
        work_ = &work;
        wanted_ = helpers;
        try {
            for (; alive_ < helpers; ++alive_) log::own_thread([this] { serve(); }).detach();
        } catch (const std::exception&) {
            // No thread to be had, or no memory for it: the caller and those that are here do it.
        }
        wake_.notify_all();
    }
    work(true);
    std::unique_lock lock(mutex_);
    wanted_ = 0;   // who has not started by now need not
    lock.unlock();
    spin_until([this] { return running_.load(std::memory_order_relaxed) == 0; });
    lock.lock();
    while (running_ != 0) done_.wait_for(lock, kDoneCheck);
    work_ = nullptr;
    taken_.store(false, std::memory_order_release);
}

void ThreadTeam::serve() {
    begin_own_thread();
    std::unique_lock lock(mutex_);
    auto last_work = std::chrono::steady_clock::now();
    while (true) {
        if (wanted_ > 0) {
            --wanted_;
            ++running_;
            const auto* work = work_;
            lock.unlock();
            (*work)(false);
            lock.lock();
            if (--running_ == 0) done_.notify_all();
            last_work = std::chrono::steady_clock::now();
            lock.unlock();
            spin_until([this] { return wanted_.load(std::memory_order_relaxed) > 0; });
            lock.lock();
            continue;
        }
        wake_.wait_for(lock, kTeamIdleLife);
        if (wanted_ == 0 && std::chrono::steady_clock::now() - last_work >= kTeamIdleLife) break;
    }
    --alive_;
}

}  // namespace peerlane
