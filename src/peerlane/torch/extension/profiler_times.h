// The times that torch's profiler measures of operations on the device, by events of the current stream.
#pragma once
#include <c10/core/Event.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "guard.h"

namespace peerlane_torch {

// Without one torch's profiler throws and catches an error for each operation, which takes a second.
class ProfilerTimes final : public torch::profiler::impl::ProfilerStubs {
    using Mark = torch::profiler::impl::ProfilerVoidEventStub;

  public:
    void record(DeviceIndex* device, Mark* mark, int64_t* cpu_ns) const override {
        const c10::Stream stream = Guard().getStream(Guard().getDevice());
        auto event = std::make_shared<c10::Event>(kDevice, c10::EventFlag::BACKEND_DEFAULT);
        event->record(stream);
        if (device) *device = stream.device_index();
        if (cpu_ns) *cpu_ns = c10::getTime();
        *mark = std::move(event);
    }
    float elapsed(const Mark* first, const Mark* last) const override {
        const auto start = std::static_pointer_cast<c10::Event>(*first), end = std::static_pointer_cast<c10::Event>(*last);
        start->synchronize();
        end->synchronize();
        return static_cast<float>(start->elapsedTime(*end) * 1e3);
    }
    void mark(const char*) const override {}
    void rangePush(const char*) const override {}
    void rangePop() const override {}
    bool enabled() const override { return true; }
    void onEachDevice(std::function<void(int)> call) const override {
        const Device before = Guard().getDevice();
        for (DeviceIndex each = 0; each < Guard().deviceCount(); ++each) {
            Guard().setDevice({kDevice, each});
            call(each);
        }
        Guard().setDevice(before);
    }
    void synchronize() const override { Guard().synchronizeDevice(current_device); }
};

inline void register_profiler_times() {
    static ProfilerTimes times;
#ifdef PEERLANE_AS_CUDA
    torch::profiler::impl::registerCUDAMethods(&times);
#else
    torch::profiler::impl::registerPrivateUse1Methods(&times);
#endif
}

}  // namespace peerlane_torch
