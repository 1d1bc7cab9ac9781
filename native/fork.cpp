#include "fork.h"

#include "notify.h"
#include "reduction.h"
#include "scheduler.h"
#include "thread_team.h"

namespace peerlane {

bool begin_anew() {
    if (!Heap::is_made()) return true;
    Heap& heap = Heap::get();
    if (!heap.is_forked()) return true;
    if (!Notify::begin_anew()) return false;
    if (!Scheduler::get().begin_anew() || !heap.begin_anew()) return false;
    ThreadTeam::begin_anew();
    forget_turns();
    return true;
}

}  // namespace peerlane
