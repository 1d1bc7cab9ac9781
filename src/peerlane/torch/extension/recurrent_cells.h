// Cells of LSTM and GRU: torch has fused kernels of them for other devices alone.  Here they are made of operations that have gradients.
#pragma once
#include <ATen/ATen.h>
#include <torch/library.h>

#include "runtime.h"

namespace peerlane_torch {

inline at::Tensor with_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
    return bias && bias->defined() ? gates + *bias : gates;
}

// The last result is what a fused kernel keeps for its gradient.
inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& of_input, const at::Tensor& of_hidden, const at::Tensor& cell,
                                                                const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
    const auto gates = (with_bias(of_input, input_bias) + with_bias(of_hidden, hidden_bias)).chunk(4, 1);
    const at::Tensor next = gates[1].sigmoid() * cell + gates[0].sigmoid() * gates[2].tanh();
    return {gates[3].sigmoid() * next.tanh(), next, at::empty({0}, cell.options())};
}
inline std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& of_input, const at::Tensor& of_hidden, const at::Tensor& hidden,
                                                   const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
    const auto input = with_bias(of_input, input_bias).chunk(3, 1), before = with_bias(of_hidden, hidden_bias).chunk(3, 1);
    const at::Tensor reset = (input[0] + before[0]).sigmoid(), kept = (input[1] + before[1]).sigmoid();
    const at::Tensor next = (input[2] + reset * before[2]).tanh();
    return {(hidden - next) * kept + next, at::empty({0}, hidden.options())};
}

TORCH_LIBRARY_IMPL(aten, PEERLANE_KEY, m) {
    m.impl("_thnn_fused_lstm_cell", &lstm_cell);
    m.impl("_thnn_fused_gru_cell", &gru_cell);
}
TORCH_LIBRARY_IMPL(aten, PEERLANE_AUTOGRAD_KEY, m) {
    m.impl("_thnn_fused_lstm_cell", &lstm_cell);
    m.impl("_thnn_fused_gru_cell", &gru_cell);
}

}  // namespace peerlane_torch
