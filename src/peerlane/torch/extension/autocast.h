// torch.autocast("peerlane"): torch's own lists of operations by policy.
#pragma once
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <torch/library.h>

namespace at::autocast {

#define PEERLANE_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define PEERLANE_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define PEERLANE_SET(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define PEERLANE_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
    AT_FORALL_LOWER_PRECISION_FP(PEERLANE_LOWER)
    AT_FORALL_FP32(PEERLANE_FP32)
    AT_FORALL_FP32_SET_OPT_DTYPE(PEERLANE_SET)
    AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
    AT_FORALL_PROMOTE(PEERLANE_PROMOTE)
    // Refused as under CUDA's autocast: torch's own kernel there raises the sentence, whatever the device.
    m.impl("binary_cross_entropy", [](const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight, int64_t reduction) {
        return _ops::binary_cross_entropy::redispatch(c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA), self, target, weight, reduction);
    });
}

#undef PEERLANE_LOWER
#undef PEERLANE_FP32
#undef PEERLANE_SET
#undef PEERLANE_PROMOTE

}  // namespace at::autocast
