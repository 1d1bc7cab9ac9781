// Random numbers: each operation gets a seed of its own when it is called, so they do not depend on how streams are scheduled.
// The first one after a seed gets that seed, so it draws what the processor draws.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include "runtime.h"

namespace peerlane_torch {

class DeviceGenerator final : public c10::GeneratorImpl {
  public:
    explicit DeviceGenerator(DeviceIndex device) : GeneratorImpl({kDevice, device}, c10::DispatchKeySet(kKey)) {}

    void set_current_seed(uint64_t seed) override {
        seed_ = seed;
        offset_ = 0;
    }
    uint64_t current_seed() const override { return seed_; }
    uint64_t seed() override {
        set_current_seed(c10::detail::getNonDeterministicRandom());
        return seed_;
    }
    void set_offset(uint64_t offset) override { offset_ = offset; }
    uint64_t get_offset() const override { return offset_; }
    // The seed and how many operations have used it, 8 bytes each.
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
        at::Tensor state = at::detail::empty_cpu({16}, c10::kByte);
        std::memcpy(state.data_ptr(), &seed_, 8);
        std::memcpy(static_cast<char*>(state.data_ptr()) + 8, &offset_, 8);
        return state.getIntrusivePtr();
    }
    void set_state(const c10::TensorImpl& state) override {
        at::detail::check_rng_state(state);
        TORCH_CHECK(state.numel() == 16, "the state of a generator of a device has 16 bytes, and this one has ", state.numel());
        const auto* const bytes = static_cast<const char*>(state.data());
        std::memcpy(&seed_, bytes, 8);
        std::memcpy(&offset_, bytes + 8, 8);
    }
    // For one operation, and no other one.
    at::Generator of_operation() {
        const std::lock_guard lock(mutex_);
        const uint64_t number = offset_++;
        return at::detail::createCPUGenerator(number == 0 ? seed_ : mixed(seed_ + 0x9e3779b97f4a7c15u * number));
    }
    static c10::DeviceType device_type() { return kDevice; }

  private:
    static uint64_t mixed(uint64_t word) {   // splitmix64: neighbours differ in all bits
        word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
        word = (word ^ word >> 27) * 0x94d049bb133111ebu;
        return word ^ word >> 31;
    }
    DeviceGenerator* clone_impl() const override {
        auto* const copy = new DeviceGenerator(device().index());
        copy->seed_ = seed_;
        copy->offset_ = offset_;
        return copy;
    }

    uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

inline at::Generator& default_generator(DeviceIndex device) {
    static auto& generators = *new std::array<at::Generator, Devices::kMost>;
    static std::mutex mutex;
    if (device < 0) device = current_device;
    Devices::get().check(device);
    const std::lock_guard lock(mutex);
    if (!generators.at(device).defined()) generators[device] = at::make_generator<DeviceGenerator>(device);
    return generators[device];
}

}  // namespace peerlane_torch
