#include "ranks/farewell.h"

#include <utility>

namespace peerlane {

void Farewell::send() {
    std::vector<std::shared_ptr<ChannelLines>> lines;
    {
        const std::scoped_lock lock(mutex_);
        if (is_sent_.exchange(true, std::memory_order_acq_rel)) return;
        lines = lines_;
    }
    for (const auto& each : lines) each->let_go();
}

void Farewell::add(std::shared_ptr<ChannelLines> lines) {
    {
        const std::scoped_lock lock(mutex_);
        if (!is_sent()) {
            lines_.push_back(std::move(lines));
            return;
        }
    }
    lines->let_go();
}

}  // namespace peerlane
