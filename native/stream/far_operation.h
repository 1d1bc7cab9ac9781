// An operation on the memory of a process on another machine, as streams see it.
#pragma once
#include <atomic>

#include "log/log.h"
#include "stream/operation.h"

namespace peerlane {

// Who carries it out calls Scheduler::far_moved() when it is over, or when there is room again.
struct FarOperation : Extra {
    // Hand over what there is room for; true: all of it, and it is not called again.  Under the scheduler's lock.
    virtual bool post() = 0;
    virtual bool is_over() const = 0;
    virtual const Refusal* failure() const = 0;   // once it is over; null: none
    virtual Stepwise::Touched written() const = 0;   // of this process's memory
    // Log it for the checker as operation `event.sequence` of `event.stream`.  Throws std::bad_alloc.
    virtual void describe(log::Event& event, log::Spans& spans) = 0;
    virtual void log_as(uint64_t stream, uint64_t sequence) = 0;   // it is logged already, as that operation
};

// What a channel's end holds back until this process waits.
struct FarArrivals {
    virtual ~FarArrivals() = default;
    // Records of a line up to number `newest` were consumed.
    virtual void arrive(uint64_t line, uint64_t newest) noexcept = 0;
};

// What a thread does for the channels to other machines.
enum class FarTask {
    help,   // in each round of a spin
    rest,   // it does not spin any more, and is going to sleep
    send    // what was posted
};
inline std::atomic<void (*)(FarTask)> far_task{nullptr};   // null: there are no other machines
inline void do_far_task(FarTask task) {
    if (void (*const take)(FarTask) = far_task.load(std::memory_order_acquire)) take(task);
}
inline void help_far() { do_far_task(FarTask::help); }

}  // namespace peerlane
