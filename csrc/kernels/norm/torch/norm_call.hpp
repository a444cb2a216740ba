// What the norms' ops share on torch's side: how a call is computed, by a kernel or by ATen, and
// what its results look like. What their arguments and results are, each op describes itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "binding/backend.h"
#include "binding/describe.h"
#include "binding/layout.h"
#include "kernels/norm/norm.h"

namespace thunderkittens {

// Of members without the argument.
inline const optional_tensor kNoTensor;
inline const Tensor kUndefined;

// A member of the family.
struct norm_member {
  norm_op op;
  kernel forward, backward;

  // Whether it has a mean, and a bias.
  bool centred() const { return op == norm_op::layer_norm || op == norm_op::add_layer_norm; }
};

// The arguments of a call, which outlive it.
struct norm_call {
  const Tensor& x;
  const optional_tensor& residual;
  const optional_tensor& weight;
  const optional_tensor& bias;
  double eps;
  double weight_offset = 0.0;
  bool round_first = false;  // of the casting "llama"
  double dropout_p = 0.0;
  const optional_tensor& seed = kNoTensor;  // [1] int64 with dropout, else none
};

// What a forward gives: undefined where the member has none, or it is not wanted.
enum norm_result { kY, kSum, kMean, kRstd };
// The gradients a backward is asked for, or gives: undefined where not wanted.
enum norm_gradient { kDx, kDresidual, kDweight, kDbias };

struct norm_backward_call {
  const Tensor& dy;
  const optional_tensor& dsum;  // what arrives at the sum itself
  const Tensor& x;              // or the saved sum
  const optional_tensor& weight;
  const optional_tensor& bias;
  const Tensor& mean;  // undefined without one
  const Tensor& rstd;
  std::array<bool, 4> needs;
  double weight_offset = 0.0;
  double dropout_p = 0.0;
  const optional_tensor& seed = kNoTensor;
};

tensor_array<4> norm_forward(const norm_member& member, const norm_call& call, bool statistics);
tensor_array<4> norm_backward(const norm_member& member, const norm_backward_call& call);

// By ATen, from its formula.
tensor_array<4> norm_forward_aten(const norm_member& member, const norm_call& call);
tensor_array<4> norm_backward_aten(const norm_member& member, const norm_backward_call& call);

}  // namespace thunderkittens
