#include "stream/fork.h"

#include "copy/reduction.h"
#include "copy/thread_team.h"
#include "stream/notify.h"
#include "stream/scheduler.h"

namespace peerlane {

bool begin_anew() {
    if (!Heap::is_created()) return true;
    Heap& heap = Heap::get();
    if (!heap.is_forked()) return true;
    if (!Notify::begin_anew()) return false;
    if (!Scheduler::get().begin_anew() || !heap.begin_anew()) return false;
    ThreadTeam::begin_anew();
    forget_stripe_locks();
    return true;
}

}  // namespace peerlane
