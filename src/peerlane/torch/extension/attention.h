// Scaled dot product attention: torch chooses a fused kernel for a device by a stub, and here the processor's kernel is the fused one.
#pragma once
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>

#include "operations.h"

namespace peerlane_torch {

// torch names fused kernels of CUDA, of which the processor has one: a program that allows another one alone (torch.nn.attention.sdpa_kernel) gets that.
class FusedAllowed {
  public:
    FusedAllowed() : lock_(mutex()), changes_(!context_.userEnabledFlashSDP() && (context_.userEnabledMemEfficientSDP() || context_.userEnabledCuDNNSDP())) {
        if (changes_) context_.setSDPUseFlash(true);
    }
    ~FusedAllowed() {
        if (changes_) context_.setSDPUseFlash(false);
    }
    FusedAllowed(const FusedAllowed&) = delete;

  private:
    static std::mutex& mutex() {
        static std::mutex mutex;
        return mutex;
    }

    const std::lock_guard<std::mutex> lock_;   // the setting is the process's
    at::Context& context_ = at::globalContext();
    const bool changes_;
};

// Where the processor takes its fused kernel, torch is to call the one named "efficient": it takes masks, has the same form for all devices, and
// DTensor knows how to shard it.
inline int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                                std::optional<double> scale, bool shares_heads) {
    const FusedAllowed allowed;
    const int64_t choice = at::_ops::_fused_sdp_choice::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), query, key, value, mask, dropout_p, is_causal, scale, shares_heads);
    return choice == static_cast<int64_t>(at::SDPBackend::flash_attention) ? static_cast<int64_t>(at::SDPBackend::efficient_attention) : choice;
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& bias, bool,
                                                                            double dropout_p, bool is_causal, std::optional<double> scale) {
    auto [output, sums] = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, bias, scale);
    return {std::move(output), std::move(sums), at::empty({}, c10::kLong), at::empty({}, c10::kLong)};   // it draws no numbers
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                                                                     const at::Tensor& bias, const at::Tensor& output, const at::Tensor& sums, const at::Tensor&, const at::Tensor&,
                                                                                     double dropout_p, std::array<bool, 4> wanted, bool is_causal, std::optional<double> scale) {
    TORCH_CHECK_NOT_IMPLEMENTED(!wanted[3], kDevice, " has no gradient of a mask of fused attention: the processor's kernel has none. Use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
    const std::optional<at::Tensor> mask = bias.defined() ? std::optional(bias) : std::nullopt;
    auto [of_query, of_key, of_value] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, query, key, value, output, sums, dropout_p, is_causal, mask, scale);
    return {std::move(of_query), std::move(of_key), std::move(of_value), at::Tensor()};
}

inline void register_attention() {
#ifdef PEERLANE_AS_CUDA
    at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
#else
    at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
#endif
}

}  // namespace peerlane_torch
