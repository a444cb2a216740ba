// attention by ATen: what the kernels do not cover, forward and backward. Torch, unlike
// attention.h.
#pragma once

#include <limits>

#include "binding/attention_scale.h"
#include "kernels/attention/torch/attention_call.hpp"

namespace thunderkittens {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether the tensor is one of torch.compile's or vmap's, whose numbers cannot be read here.
bool is_stand_in(const Tensor& t);

// o and lse, of differentiable ATen ops. Where lse is not wanted it may be undefined, and torch's
// own fused attention is used where it computes the same.
tensor_array<2> attention_by_aten(const attention_call& c);

// Whether torch's FlashAttention kernels take the tensors, which it is then asked for by name.
bool flash_takes(const Tensor& q, const Tensor& k, const Tensor& v);

// dq, dk, dv and dsinks from o and lse, whatever computed those. What is not needed may be
// undefined.
tensor_array<4> attention_backward_by_aten(const attention_backward_call& b);

}  // namespace thunderkittens
