// Events: the last record of each, which Python and the calls of C without Python both make and read.
#pragma once
#include <mutex>
#include <utility>

#include "stream/scheduler.h"

namespace peerlane {

class Event {
  public:
    Event() = default;
    ~Event() { replace(nullptr); }
    Event(const Event&) = delete;

    // The reference is the caller's; null: there is no record.
    Mark* mark() const {
        const Lock lock(*this);
        if (mark_) mark_->hold();
        return mark_;
    }
    // Takes the caller's reference over.
    void replace(Mark* mark) {
        Mark* before;
        {
            const Lock lock(*this);
            before = std::exchange(mark_, mark);
        }
        if (before) before->drop();
    }
    // For calls of C.  False, and nothing happens, if Python must be asked.
    bool record_quickly(Stream& stream) {
        Mark* before;
        {
            const Lock lock(*this);   // the scheduler's lock is inside it
            if (!is_quick_) return false;
            before = std::exchange(mark_, Scheduler::get().record(stream));
        }
        if (before) before->drop();
        return true;
    }
    // Whether calls of C may use it without Python: it is neither closed nor known to other processes.
    bool is_quick() const {
        const Lock lock(*this);
        return is_quick_;
    }
    void end_quick_calls() {
        const Lock lock(*this);
        is_quick_ = false;
    }

  private:
    // In a forked child nobody else is there, and another thread of the parent's may have had the lock.
    class Lock {
      public:
        explicit Lock(const Event& event) : lock_(event.mutex_, std::defer_lock) {
            if (!Heap::get().is_forked()) lock_.lock();
        }

      private:
        std::unique_lock<std::mutex> lock_;
    };

    mutable std::mutex mutex_;
    Mark* mark_ = nullptr;
    bool is_quick_ = true;
};

}  // namespace peerlane
