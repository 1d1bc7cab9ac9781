#include "stream/channel_lines.h"

#include <map>
#include <mutex>

#include "memory/heap.h"
#include "ranks/completions.h"
#include "share/shared_signal.h"
#include "stream/scheduler.h"

namespace peerlane {

namespace {

// The ids of the lines that live, by the first.
struct Ids {
    std::mutex mutex;
    std::map<uint64_t, uint32_t> counts;

    static Ids& get() {
        static auto* ids = new Ids;
        return *ids;
    }
};

uint64_t enter(uint32_t count) {
    Heap::get().begin_use();   // in a forked child another thread of the parent may have held the lock
    if (count == 0) return 0;
    const uint64_t first = Notify::take_ids(count);
    Ids& ids = Ids::get();
    std::lock_guard lock(ids.mutex);
    ids.counts.emplace(first, count);
    return first;
}

}  // namespace

ChannelLines::ChannelLines(NotifyKind kind, uint32_t count, uint32_t device, std::shared_ptr<SharedSignal> bank)
    : kind(kind), count(count), first_id(enter(count)), bank_(std::move(bank)), device_(device), notifies_(new std::atomic<Notify*>[count]()) {}

ChannelLines::ChannelLines(std::shared_ptr<Completions> queue, uint32_t count, uint32_t device)
    : kind(NotifyKind::queued), count(count), first_id(enter(count)), queue_(std::move(queue)), bank_(queue_->bank()), device_(device),
      notifies_(new std::atomic<Notify*>[count]()) {}

ChannelLines::~ChannelLines() {
    for (uint32_t i = 0; i < count; ++i)
        if (Notify* const notify = notifies_[i].load(std::memory_order_acquire)) notify->drop();
    if (first_id == 0 || Heap::get().is_forked()) return;
    Ids& ids = Ids::get();
    std::lock_guard lock(ids.mutex);
    ids.counts.erase(first_id);
}

uint64_t ChannelLines::first_id_of(uint64_t id) {
    if (Heap::get().is_forked()) return id;   // another thread of the parent may have held the lock
    Ids& ids = Ids::get();
    std::lock_guard lock(ids.mutex);
    auto behind = ids.counts.upper_bound(id);
    if (behind == ids.counts.begin()) return id;
    const auto [first, count] = *--behind;
    return id - first < count ? first : id;
}

Notify& ChannelLines::at(uint32_t i) {
    std::atomic<Notify*>& slot = notifies_[i];
    if (Notify* const notify = slot.load(std::memory_order_acquire)) [[likely]] return *notify;
    struct Drop {
        void operator()(Notify* notify) const { notify->drop(); }
    };
    std::unique_ptr<Notify, Drop> fresh(queue_ ? Notify::queued(queue_, i, device_) : Notify::local(kind, device_));
    fresh->id = first_id + i;
    if (bank_ && !queue_) Scheduler::get().share(*fresh, bank_, false, i);
    Notify* other = nullptr;   // of a thread that was faster
    if (!slot.compare_exchange_strong(other, fresh.get(), std::memory_order_seq_cst)) return *other;
    // Either this sees that they are abandoned, or abandon() sees this one.
    if (is_abandoned_.load(std::memory_order_seq_cst)) Scheduler::get().abandon(*fresh);
    return *fresh.release();
}

std::vector<uint32_t> ChannelLines::unconsumed() const {
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < count; ++i) {
        const Notify* const notify = notifies_[i].load(std::memory_order_acquire);
        if (!notify && (!bank_ || queue_)) continue;   // nobody else can have recorded it
        const SignalLine& line = notify ? notify->signal() : bank_->line(i);
        if (line.recorded() > line.consumed.load(std::memory_order_acquire)) all.push_back(i);
    }
    return all;
}

void ChannelLines::abandon() {
    is_abandoned_.store(true, std::memory_order_seq_cst);
    for (uint32_t i = 0; i < count; ++i)
        if (Notify* const notify = notifies_[i].load(std::memory_order_seq_cst)) Scheduler::get().abandon(*notify);
}

void ChannelLines::let_go() {
    if (bank_)
        bank_->let_go();
    else
        abandon();
}

}  // namespace peerlane
