// The device under the name `cuda`, which torch's processor build has without kernels.  torch's libraries treat that name as one of their
// own: they look for kernels of copies and convolutions that only its library for CUDA has.  Here these are operations as any other.
#pragma once
#include <new>
#include <typeinfo>

#include "hooks.h"

namespace peerlane_torch {

struct CUDAHooks final : HooksOf<at::CUDAHooksInterface> {
    bool hasCUDA() const override { return isAvailable(); }
    DeviceIndex current_device() const override { return peerlane_torch::current_device; }
    c10::Allocator* getCUDADeviceAllocator() const override { return &allocator(); }
    int getNumGPUs() const override { return deviceCount(); }
    void deviceSynchronize(DeviceIndex device) const override { Guard().synchronizeDevice(device); }
    std::string showConfig() const override { return "peerlane: virtual devices under the name cuda"; }
};

// While torch is imported it makes the object that it will ask about CUDA, and later it takes no other one.  So this one takes its memory.
inline void register_hooks() {
    const at::CUDAHooksInterface& of_torch = at::detail::getCUDAHooks();
    static_assert(sizeof(CUDAHooks) == sizeof(at::CUDAHooksInterface));
    TORCH_CHECK(typeid(of_torch) == typeid(at::CUDAHooksInterface), "this build of torch has devices of CUDA itself: use torch's build for the processor");
    new (const_cast<at::CUDAHooksInterface*>(&of_torch)) CUDAHooks;
}

inline at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
    if (self.is_same(from)) return self;
    copy_from(from, self, non_blocking);
    return self;
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
    m.impl("copy_", &copy);
    m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
    m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

}  // namespace peerlane_torch
