#include "ranks/farewell.h"

namespace peerlane {

void Farewell::send() {
    if (is_sent_.exchange(true, std::memory_order_acq_rel)) return;
    for (const auto& lines : lines_) lines->let_go();
}

}  // namespace peerlane
