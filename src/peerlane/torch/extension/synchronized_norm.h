// The parts of SyncBatchNorm, a batch norm over the batches of all ranks: torch has kernels of them for GPUs alone, so here other operations make them.
#pragma once
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include "operations.h"

namespace peerlane_torch {

// Statistics of narrow types are in single precision, as CUDA has them.
inline at::Tensor widened(const at::Tensor& tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }

inline std::vector<int64_t> all_but_channels(const at::Tensor& batch) {
    std::vector<int64_t> dimensions;
    for (int64_t i = 0; i < batch.dim(); ++i)
        if (i != 1) dimensions.push_back(i);
    return dimensions;
}
// A number for each channel, in the shape that meets those of the batch.
inline at::Tensor by_channel(const at::Tensor& numbers, const at::Tensor& batch) {
    std::vector<int64_t> shape(static_cast<size_t>(batch.dim()), 1);
    shape.at(1) = -1;
    return numbers.view(shape);
}
inline at::Tensor centred(const at::Tensor& batch, const at::Tensor& mean) { return widened(batch) - by_channel(mean, batch); }

inline std::tuple<at::Tensor, at::Tensor> norm_stats(const at::Tensor& input, double eps) {
    const auto [variance, mean] = at::var_mean(widened(input), all_but_channels(input), /*unbiased=*/false);
    return {mean, (variance + eps).rsqrt()};
}

// `mean` and `inverse` have a row for each rank, `counts` a number.
inline std::tuple<at::Tensor, at::Tensor> norm_gather_stats_with_counts(const at::Tensor&, const at::Tensor& mean, const at::Tensor& inverse, const std::optional<at::Tensor>& running_mean,
                                                                        const std::optional<at::Tensor>& running_variance, double momentum, double eps, const at::Tensor& counts) {
    const at::Tensor weights = counts.to(mean.scalar_type()).view({-1, 1}), total = weights.sum();
    const at::Tensor of_all = (mean * weights).sum(0) / total;
    const at::Tensor squares = ((inverse.pow(-2) - eps + (mean - of_all).square()) * weights).sum(0);
    if (running_mean && running_mean->defined()) running_mean->lerp_(of_all.to(running_mean->scalar_type()), momentum);
    if (running_variance && running_variance->defined()) running_variance->lerp_((squares / (total - 1)).to(running_variance->scalar_type()), momentum);
    return {of_all, (squares / total + eps).rsqrt()};
}
inline std::tuple<at::Tensor, at::Tensor> norm_gather_stats(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& inverse, const std::optional<at::Tensor>& running_mean,
                                                            const std::optional<at::Tensor>& running_variance, double momentum, double eps, int64_t count) {
    const at::Tensor counts = at::full({mean.size(0)}, count, mean.options());
    return norm_gather_stats_with_counts(input, mean, inverse, running_mean, running_variance, momentum, eps, counts);
}

inline at::Tensor norm_elements(const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, const at::Tensor& mean, const at::Tensor& inverse, double) {
    at::Tensor result = centred(input, mean) * by_channel(weight && weight->defined() ? inverse * *weight : inverse, input);
    if (bias && bias->defined()) result = result + by_channel(*bias, input);
    return result.to(input.scalar_type());
}
inline at::Tensor& norm_elements_out(const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, const at::Tensor& mean, const at::Tensor& inverse,
                                     double eps, at::Tensor& out) {
    out.resize_(input.sizes());
    return out.copy_(norm_elements(input, weight, bias, mean, inverse, eps));
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> norm_backward_reduce(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& inverse,
                                                                                       const std::optional<at::Tensor>& weight, bool of_input, bool of_weight, bool of_bias) {
    const std::vector<int64_t> dimensions = all_but_channels(input);
    const at::Tensor wide = widened(gradient), sums = wide.sum(dimensions), products = (wide * centred(input, mean)).sum(dimensions);
    const bool has_weight = weight && weight->defined();
    const auto as_weight = [&](const at::Tensor& each) { return each.to(weight->scalar_type(), /*non_blocking=*/false, /*copy=*/true); };
    return {of_input ? sums : at::Tensor(), of_input ? products : at::Tensor(), has_weight && of_weight ? as_weight(products * inverse) : at::Tensor(),
            has_weight && of_bias ? as_weight(sums) : at::Tensor()};
}

inline at::Tensor norm_backward_elements(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& inverse, const std::optional<at::Tensor>& weight,
                                         const at::Tensor& sums, const at::Tensor& products, const at::Tensor& counts) {
    const at::Tensor total = counts.to(mean.scalar_type()).sum();
    const at::Tensor slope = by_channel(inverse.square() * products / total, input), level = by_channel(sums / total, input);
    const at::Tensor scale = by_channel(weight && weight->defined() ? inverse * *weight : inverse, input);
    return ((widened(gradient) - level - centred(input, mean) * slope) * scale).to(input.scalar_type());
}

}  // namespace peerlane_torch
