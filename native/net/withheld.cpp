#include "net/withheld.h"

#include <algorithm>

#include "copy/reduction.h"
#include "memory/fault_guard.h"
#include "stream/stream.h"

namespace peerlane::net {

namespace {

template <class Touch>
bool could_touch(const Touch& touch) {
    FaultGuard guard;
    return guarded(guard, touch);
}

}  // namespace

bool write_into(const Frame& frame, const char* bytes, char* base) {
    return could_touch([&] { memcpy(base + frame.at, bytes, frame.size); });
}

bool reduce_into(const Frame& frame, const char* bytes, char* base) {
    const Reduction& reduction = reductions()[frame.detail / kCombines][frame.detail % kCombines];
    std::unique_ptr<char[]> aligned;   // what comes in a message begins anywhere
    if (reinterpret_cast<uint64_t>(bytes) % reduction.width != 0) {
        aligned = std::make_unique_for_overwrite<char[]>(frame.size);
        memcpy(aligned.get(), bytes, frame.size);
        bytes = aligned.get();
    }
    return could_touch([&] { reduce_alone(reduction, base + frame.at, bytes, frame.size); });
}

bool scatter_into(const Frame& frame, const char* bytes, char* base) {
    return could_touch([&] {
        const char* from = bytes + frame.detail * sizeof(FarEntry);
        for (uint32_t i = 0; i < frame.detail; ++i) {
            FarEntry entry;
            memcpy(&entry, bytes + i * sizeof entry, sizeof entry);
            memcpy(base + entry.at, from, entry.size);
            from += entry.size;
        }
    });
}

Withheld::Withheld(size_t lines, bool one_by_one) : one_by_one_(one_by_one), lines_(lines) { living_.fetch_add(1, std::memory_order_relaxed); }

Withheld::~Withheld() {
    living_.fetch_sub(1, std::memory_order_relaxed);
    for (const Entry& entry : entries_) Heap::get().unpin(entry.range);
}

void Withheld::stage(const Frame& frame, const Range& range, std::unique_ptr<char[]> bytes, uint64_t size) {
    std::lock_guard lock(mutex_);
    if (bytes_ + size > kMostBytes || entries_.size() >= kMostEntries) deliver_until(staged_);
    entries_.push_back({frame, range, std::move(bytes), size, now_ns()});
    ++staged_;
    bytes_ += size;
}

void Withheld::record(uint64_t line) {
    std::lock_guard lock(mutex_);
    Line& of = lines_[line];
    ++of.recorded;
    // Its consumer consumes the one before too, which delivers as much.
    const bool delivers_nothing = of.records.empty() ? staged_ == delivered_ : of.records.back().before == staged_;
    if (one_by_one_ || !delivers_nothing) of.records.push_back({of.recorded, staged_});
}

void Withheld::unmade(uint64_t line) {
    std::lock_guard lock(mutex_);
    Line& of = lines_[line];
    if (!of.records.empty() && of.records.back().number == of.recorded) of.records.pop_back();
    --of.recorded;
}

void Withheld::arrive(uint64_t line, uint64_t newest) noexcept {
    std::lock_guard lock(mutex_);
    if (line >= lines_.size()) return;
    auto& records = lines_[line].records;
    uint64_t before = 0;
    if (one_by_one_ && !records.empty()) newest = records.front().number;
    for (; !records.empty() && records.front().number <= newest; records.pop_front()) before = records.front().before;
    deliver_until(before);
}

void Withheld::deliver_all() noexcept {
    std::lock_guard lock(mutex_);
    deliver_until(staged_);
}

bool Withheld::has_older_than(uint64_t nanoseconds) const {
    std::lock_guard lock(mutex_);
    return !entries_.empty() && now_ns() - entries_.front().staged_ns >= nanoseconds;
}

// Frames whose memory cannot be touched any more are dropped: their sender has the acknowledgement.
void Withheld::deliver_until(uint64_t count) noexcept {
    for (; delivered_ < count; ++delivered_) {
        Entry& entry = entries_.front();
        const auto into = entry.frame.kind == FrameKind::reduce    ? reduce_into
                          : entry.frame.kind == FrameKind::scatter ? scatter_into
                                                                   : write_into;
        into(entry.frame, entry.bytes.get(), entry.range.host);
        Heap::get().unpin(entry.range);
        bytes_ -= entry.size;
        entries_.pop_front();
    }
}

}  // namespace peerlane::net
