// What add_layer_norm and add_rms_norm share: everything but their schemas and argument tables.
//
//   sum = dropout(x) + residual,   y = norm(sum)
//
// Two inner ops serve both, for autograd: `add_norm_forward` also returns the statistics of the sum
// (mean, empty where the norm has none, and rstd, [x.shape[:-1]] in float32, float64 for float64),
// and `add_norm_backward` takes them and the sum as it was returned.
#pragma once

#include <c10/core/DispatchKeySet.h>

#include <string_view>
#include <tuple>

#include "binding/arguments.h"
#include "kernels/norm/torch/norm_call.hpp"

namespace thunderkittens {

// One of the two ops.
struct add_norm_member {
  const char* name;
  norm_member norm;
  // Checks the arguments that are in its table.
  void (*check)(const norm_call& call);
};
const add_norm_member& add_norm_of(bool centred);
struct enter_add_norm {
  explicit enter_add_norm(const add_norm_member& member);
};

using y_and_sum = std::tuple<Tensor, Tensor>;

// The seed to use: none where nothing is dropped, the one given, or one from torch's generator,
// drawn on x's device, so that a CUDA graph draws a new one at each replay. Raises for a bad p.
optional_tensor seed_of(const char* op, const Tensor& x, double p, bool training,
                        const optional_tensor& seed);

// The public op without a gradient, in Meta, and recording one; `call.seed` is from seed_of.
y_and_sum add_norm(bool centred, const norm_call& call);
y_and_sum add_norm_meta(bool centred, const norm_call& call);
y_and_sum add_norm_recorded(bool centred, const norm_call& call);

}  // namespace thunderkittens
