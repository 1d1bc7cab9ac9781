#include "ranks/farewell.h"

#include "share/shared_signal.h"
#include "stream/scheduler.h"

namespace peerlane {

Farewell::~Farewell() {
    for (Notify* const line : lines_) line->drop();
}

void Farewell::send() {
    if (is_sent_.exchange(true, std::memory_order_acq_rel)) return;
    for (Notify* const line : lines_) {
        if (SharedSignal* const bank = line->shared())
            bank->let_go();
        else
            Scheduler::get().abandon(*line);
    }
}

}  // namespace peerlane
