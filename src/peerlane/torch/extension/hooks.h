// What torch's libraries ask of the device, beside the guard: whether there is one, its generators, pinned memory.
#pragma once
#ifdef PEERLANE_AS_CUDA
#include <ATen/detail/CUDAHooksInterface.h>
#else
#include <ATen/detail/PrivateUse1HooksInterface.h>
#endif

#include "copies.h"
#include "generators.h"
#include "guard.h"

namespace peerlane_torch {

template <class Interface>
struct HooksOf : Interface {
    void init() const override {}
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return deviceCount() > 0; }
    bool hasPrimaryContext(DeviceIndex device) const override { return device >= 0 && device < deviceCount(); }
    DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
    DeviceIndex getCurrentDevice() const override { return current_device; }
    void setCurrentDevice(DeviceIndex device) const override { Guard().setDevice({kDevice, device}); }
    DeviceIndex exchangeDevice(DeviceIndex device) const override { return Guard().exchangeDevice({kDevice, device}).index(); }
    DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return device < 0 ? current_device : exchangeDevice(device); }
    const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
    at::Generator getNewGenerator(DeviceIndex device) const override { return at::make_generator<DeviceGenerator>(device < 0 ? current_device : device); }
    bool isPinnedPtr(const void* address) const override { return PinnedAllocator::get().has(address); }
    c10::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::get(); }
    Device getDeviceFromPtr(void* address) const override {
        return with_python([&](py::handle module) { return Device(kDevice, module.attr("device_at")(reinterpret_cast<uintptr_t>(address)).cast<DeviceIndex>()); });
    }
};

#ifndef PEERLANE_AS_CUDA
struct Hooks final : HooksOf<at::PrivateUse1HooksInterface> {
    void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override { resize_storage(storage, size); }
};
inline void register_hooks() { at::RegisterPrivateUse1HooksInterface(new Hooks); }
#endif

}  // namespace peerlane_torch
