#include "stream/stream.h"

#include <unistd.h>

#include <utility>

#include "stream/ready_descriptors.h"

namespace peerlane {

constexpr uint32_t kMostCauses = 16;

static uint64_t next_group_id() {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
}

constexpr uint64_t kTimeToAbort = 5'000'000'000;   // nanoseconds

bool Failure::awaits_abort() const {
    return abort_flag && !is_aborted() && now_ns() - abort_flag->failed_ns.load(std::memory_order_relaxed) < kTimeToAbort;
}

FailurePtr Failure::keep(Failure&& failure) noexcept {
    if (failure.cause) failure.abort_flag = failure.cause->abort_flag;
    if (uint64_t never = 0; failure.abort_flag)
        failure.abort_flag->failed_ns.compare_exchange_strong(never, now_ns(), std::memory_order_relaxed);
    if (failure.cause && failure.cause->causes + 1 >= kMostCauses)
        while (failure.cause->cause) failure.cause = FailurePtr(failure.cause->cause);   // a copy: it is held by what goes
    failure.causes = failure.cause ? failure.cause->causes + 1 : 0;
    static const auto& none = *new FailurePtr(new Failure{.refusal = {.why = Why::system_memory}});
    try {
        return std::make_shared<const Failure>(std::move(failure));
    } catch (const std::bad_alloc&) {
        return none;
    }
}

void ParkList::add(Stream& stream) {
    stream.parked_in = this;
    stream.park_previous = last;
    stream.park_next = nullptr;
    (last ? last->park_next : first) = &stream;
    last = &stream;
}

void ParkList::remove(Stream& stream) {
    (stream.park_previous ? stream.park_previous->park_next : first) = stream.park_next;
    (stream.park_next ? stream.park_next->park_previous : last) = stream.park_previous;
    stream.parked_in = nullptr;
    stream.park_next = stream.park_previous = nullptr;
}

void StreamSet::admit() {
    if (streams_.capacity() == admitted_) streams_.reserve(2 * admitted_ + 8);
    ++admitted_;
}

void StreamSet::dismiss(Stream& stream) {
    remove(stream);
    --admitted_;
}

void StreamSet::add(Stream& stream) {
    if (stream.*index_ != 0) return;
    streams_.push_back(&stream);
    stream.*index_ = streams_.size();
}

void StreamSet::remove(Stream& stream) {
    const size_t index = std::exchange(stream.*index_, 0);
    if (index == 0) return;
    Stream* const last = streams_.back();
    streams_.pop_back();
    if (last == &stream) return;
    streams_[index - 1] = last;
    last->*index_ = index;
}

void StreamSet::clear() {
    for (Stream* stream : streams_) stream->*index_ = 0;
    streams_.clear();
}

Group::Group() : id(next_group_id()), held_up(&Stream::group_index) {}

Mark::~Mark() {
    if (fd < 0) return;
    ready_descriptors::remove(fd);
    close(fd);
}

uint32_t Group::enter(bool legacy) {
    if (phases.back().legacy != legacy) {
        if (phases.back().outstanding != 0)
            phases.push_back({0, legacy});
        else
            phases.back().legacy = legacy;
    }
    ++phases.back().outstanding;
    outstanding.fetch_add(1, std::memory_order_relaxed);
    return first + static_cast<uint32_t>(phases.size()) - 1;
}

bool Group::leave(uint32_t phase, uint64_t n) {
    phases[phase - first].outstanding -= n;
    outstanding.fetch_sub(n, std::memory_order_release);
    bool moved = false;
    while (phases.size() > 1 && phases.front().outstanding == 0) {
        phases.pop_front();
        ++first;
        moved = true;
    }
    return moved;
}

void CallbackQueue::push(Item item) {
    {
        std::lock_guard lock(mutex_);
        items_.push_back(std::move(item));
    }
    wake_.notify_one();   // who wakes takes the lock
}

bool CallbackQueue::take(Item& item, uint64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return interrupted_ || !items_.empty(); });
    interrupted_ = false;
    if (items_.empty()) return false;
    item = std::move(items_.front());
    items_.pop_front();
    return true;
}

void CallbackQueue::remove(const Stream& stream) {
    std::lock_guard lock(mutex_);
    std::erase_if(items_, [&](const Item& item) { return item.stream.get() == &stream; });
}

void CallbackQueue::interrupt() {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
    wake_.notify_all();
}

}  // namespace peerlane
