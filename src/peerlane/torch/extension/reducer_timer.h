// The times that DistributedDataParallel measures of its reducer, by events of the current stream.
#pragma once
#include <optional>

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "guard.h"

namespace peerlane_torch {

class ReducerTimer final : public c10d::Timer {
  public:
    explicit ReducerTimer(Device device) : device_(device) {}

    void record(Event event) override {
        Timer::record(event);
        mark(event).emplace(kDevice, c10::EventFlag::BACKEND_DEFAULT).record(Guard().getStream(device_));
    }
    std::optional<int64_t> measureDifference(Event start, Event end) override {
        const auto &first = mark(start), &last = mark(end);
        if (!first || !last) return std::nullopt;
        first->synchronize();
        last->synchronize();
        const double milliseconds = first->elapsedTime(*last);
        if (milliseconds < 0) return std::nullopt;   // one is of another iteration
        return static_cast<int64_t>(milliseconds * 1e6);
    }

  private:
    std::optional<c10::Event>& mark(Event event) { return marks_.at(static_cast<size_t>(event)); }

    const Device device_;
    std::array<std::optional<c10::Event>, 5> marks_;
};

}  // namespace peerlane_torch

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, peerlane_torch::kDevice, peerlane_torch::ReducerTimer);
}
