#include "stream/wait_set.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace peerlane {

void LoopWait::link() {
    next = stream->loop_waits;
    back_link = &stream->loop_waits;
    if (next) next->back_link = &next;
    *back_link = this;
}

void LoopWait::unlink() {
    if (!back_link) return;
    *back_link = next;
    if (next) next->back_link = back_link;
    back_link = nullptr;
}

WaitSet::WaitSet() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw Refusal{.why = Why::descriptors, .role = "waits", .error = errno};
}

WaitSet::~WaitSet() {
    {
        std::unordered_map<uint64_t, LoopWait> gone;
        const Scheduler::Lock lock(all_.mutex_);
        for (auto& [token, wait] : waits_) wait.unlink();
        gone.swap(waits_);
        leave_if_empty();
    }
    close(fd_);
}

bool WaitSet::add(uint64_t token, Stream& stream) {
    Heap::get().check_usable();
    const Scheduler::Lock lock(all_.mutex_);
    return add_locked(token, stream.shared_from_this(), stream.submitted.load(std::memory_order_relaxed));
}

bool WaitSet::add(uint64_t token, const Mark& mark) {
    Heap::get().check_usable();
    const Scheduler::Lock lock(all_.mutex_);
    return mark.stream && add_locked(token, mark.stream, mark.sequence);
}

bool WaitSet::add_locked(uint64_t token, const StreamPtr& stream, uint64_t sequence) {
    if (stream->completed.load(std::memory_order_relaxed) >= sequence) return false;
    if (over_.capacity() <= waits_.size()) over_.reserve(2 * waits_.size() + 8);
    if (waits_.empty()) all_.wait_sets_.push_back(this);
    try {
        waits_.try_emplace(token, LoopWait{this, token, sequence, stream}).first->second.link();
    } catch (...) {
        leave_if_empty();
        throw;
    }
    all_.note_call();
    all_.let_held_run();
    all_.demand(*stream, sequence);
    if (all_.schedule() == Schedule::seeded && all_.able_.size() != 0) ring();   // the loop is to run what can run
    return true;
}

// The caller drops the stream after it has released the lock: this may be the last reference.
StreamPtr WaitSet::extract(uint64_t token) {
    auto wait = waits_.extract(token);
    if (wait.empty()) return nullptr;
    wait.mapped().unlink();
    leave_if_empty();
    return std::move(wait.mapped().stream);
}

void WaitSet::leave_if_empty() {
    if (waits_.empty()) std::erase(all_.wait_sets_, this);
}

void WaitSet::remove(uint64_t token) {
    StreamPtr gone;
    const Scheduler::Lock lock(all_.mutex_);
    std::erase(over_, token);
    gone = extract(token);
}

void Scheduler::notify_loops(LoopWait* waits, uint64_t upto) {
    while (waits) {
        LoopWait& wait = *std::exchange(waits, waits->next);
        if (wait.sequence > upto) continue;
        wait.unlink();
        wait.set->over_.push_back(wait.token);
        wait.set->ring();
    }
}

void WaitSet::ring() {
    if (std::exchange(is_rung_, true)) return;
    const uint64_t one = 1;
    (void)!write(fd_, &one, sizeof one);
}

std::vector<uint64_t> WaitSet::take() {
    std::vector<uint64_t> tokens;
    std::vector<StreamPtr> gone;
    const Scheduler::Lock lock(all_.mutex_);
    gone.reserve(over_.size());
    if (std::exchange(is_rung_, false)) {
        uint64_t rings;
        (void)!read(fd_, &rings, sizeof rings);
    }
    for (const uint64_t token : over_) gone.push_back(extract(token));
    tokens = over_;
    over_.clear();   // its room stays, so that adding an operation cannot fail
    return tokens;
}

std::vector<std::pair<uint64_t, Refusal>> WaitSet::take_hopeless() {
    std::vector<std::pair<uint64_t, Refusal>> hopeless;
    std::vector<StreamPtr> gone;
    const Scheduler::Lock lock(all_.mutex_);
    hopeless.reserve(waits_.size());
    gone.reserve(waits_.size());
    for (auto& [token, wait] : waits_) {
        Stream& stream = *wait.stream;
        if (!wait.back_link || (stream.closing && all_.give_up_if_hopeless(stream))) continue;
        try {
            (void)all_.find_help(stream);   // refuses a callback that would wait for itself
            all_.refuse_if_hopeless(stream);
        } catch (const Refusal& refusal) {
            hopeless.emplace_back(token, refusal);
        }
    }
    for (const auto& [token, refusal] : hopeless) gone.push_back(extract(token));
    return hopeless;
}

}  // namespace peerlane
