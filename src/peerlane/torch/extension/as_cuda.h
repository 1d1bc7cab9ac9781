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

inline at::Tensor& copy_to_quantized(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
    if (self.is_same(from)) return self;
    copy_quantized(from, self, non_blocking);
    return self;
}

// Of float16 with the results in float32, which torch asks of `cuda` in one operation, and the processor's kernels do not have.
template <const char* kName>
at::Tensor softmax(const at::Tensor& self, int64_t dim, bool to_float) {
    return call(kName, {to_float ? self.to(c10::kFloat) : self, dim, false})[0].toTensor();
}
template <const char* kName>
at::Tensor softmax_backward(const at::Tensor& gradient, const at::Tensor& output, int64_t dim, c10::ScalarType input) {
    const at::Tensor result = call(kName, {gradient, output, dim, gradient.scalar_type()})[0].toTensor();
    return result.to(input);
}
inline constexpr char kSoftmax[] = "aten::_softmax", kLogSoftmax[] = "aten::_log_softmax", kSoftmaxBackward[] = "aten::_softmax_backward_data",
                      kLogSoftmaxBackward[] = "aten::_log_softmax_backward_data";

// Operations on types that CUDA's kernels have and the processor's do not: computed in a wider type, with results of the type that was asked for.  The type
// is that of the first tensor; tensors of other types, as indices of classes, are passed on as they are.
inline void run_widened(const c10::OperatorHandle& op, Stack* stack) {
    c10::ScalarType narrow = c10::ScalarType::Undefined, wide = narrow;
    const auto& arguments = op.schema().arguments();
    const size_t first = stack->size() - arguments.size();
    std::vector<std::pair<at::Tensor, at::Tensor>> written;   // what the program passed, and the wide one
    for (size_t i = first; i < stack->size(); ++i) {
        c10::IValue& value = (*stack)[i];
        if (!value.isTensor() || !value.toTensor().defined()) continue;
        const at::Tensor passed = value.toTensor();
        const c10::ScalarType type = passed.scalar_type();
        if (narrow == c10::ScalarType::Undefined) {
            narrow = type;
            wide = c10::isIntegralType(type, false)                    ? c10::kDouble
                : type == c10::kHalf || type == c10::kBFloat16         ? c10::kFloat
                : type == c10::kComplexHalf                            ? c10::kComplexFloat
                                                                       : type;
            if (wide == narrow) break;
        }
        if (type != narrow) continue;
        value = passed.to(wide);
        const c10::AliasInfo* const alias = arguments[i - first].alias_info();
        if (alias && alias->isWrite()) written.emplace_back(passed, value.toTensor());
    }
    run_boxed(op, stack);
    if (wide == narrow) return;
    for (const auto& [passed, widened] : written) passed.copy_(widened);
    for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
        const at::Tensor result = (*stack)[i].toTensor();
        const bool is_other_kind = result.is_complex() != c10::isComplexType(narrow);   // of a transform between real and complex numbers
        (*stack)[i] = result.to(!is_other_kind ? narrow : result.is_complex() ? c10::toComplexType(narrow) : c10::toRealValueType(narrow));
    }
}

// Whether a kernel of a library for GPUs is to be taken.
inline void take_no_library(const c10::OperatorHandle& op, Stack* stack) {
    torch::jit::drop(*stack, op.schema().arguments().size());
    stack->emplace_back(false);
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
    m.impl("_softmax", &softmax<kSoftmax>);
    m.impl("_log_softmax", &softmax<kLogSoftmax>);
    m.impl("_softmax_backward_data", &softmax_backward<kSoftmaxBackward>);
    m.impl("_log_softmax_backward_data", &softmax_backward<kLogSoftmaxBackward>);
    for (const char* const each : {"_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor"})
        m.impl(each, torch::CppFunction::makeFromBoxedFunction<&take_no_library>());
    for (const char* const each : {"histc", "avg_pool3d", "avg_pool3d_backward", "_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa",
                                   "_upsample_bicubic2d_aa_backward", "_fft_r2c", "_fft_c2r", "_fft_c2c", "rrelu_with_noise", "multi_margin_loss", "multi_margin_loss_backward",
                                   "multilabel_margin_loss_forward", "multilabel_margin_loss_backward"})
        m.impl(each, torch::CppFunction::makeFromBoxedFunction<&run_widened>());
    m.impl("copy_", &copy);
    m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
    m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}
TORCH_LIBRARY_IMPL(aten, QuantizedCUDA, m) { m.impl("copy_", &copy_to_quantized); }

}  // namespace peerlane_torch
