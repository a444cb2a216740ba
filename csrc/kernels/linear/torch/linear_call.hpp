// One call of linear or quantized_linear, and what both do with it.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "binding/backend.h"
#include "binding/launch.h"
#include "binding/tensors.h"
#include "kernels/linear/linear.h"

namespace thunderkittens {

// What a call was given, which outlives it.
struct linear_call {
  const char* op;
  const Tensor &x, &weight;
  const optional_tensor &bias, &residual;
  const std::string_view& activation;
  const optional_tensor& norm_weight;
  const double& norm_eps;
  const bool& weight_is_constant;

  bool gated() const { return activation == "swiglu"; }
  int64_t parts() const { return gated() ? 2 : 1; }  // of the weight's rows
  SymInt out_features() const { return weight.sym_size(0) / parts(); }
  c10::SymDimVector result_sizes() const;
  Tensor empty_result() const { return at::empty_symint(result_sizes(), x.options()); }
};

// What the description does not say.
void check_linear(const linear_call& c);

// With `weight`, of x's dtype, in place of the call's.
Tensor linear_by_aten(const linear_call& c, const Tensor& weight);

// Of a weight that is not quantized.
linear_problem linear_problem_of(const linear_call& c);

// By a kernel or not, why not, and told to `explain`.
decision decide_linear(const kernel& k, const linear_call& c, const linear_problem& problem);

// `scale` and `zero`: of a quantized weight.
Tensor linear_by_kernel(const decision& d, linear_problem problem, const linear_call& c,
                        const Tensor& scale = {}, const Tensor& zero = {});

}  // namespace thunderkittens
