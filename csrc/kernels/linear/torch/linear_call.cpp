// linear and quantized_linear: checks, ATen, and the launch.
#include "kernels/linear/torch/linear_call.hpp"

#include "binding/layout.h"
#include "binding/tma_operand.h"

namespace thunderkittens {

c10::SymDimVector linear_call::result_sizes() const {
  const auto sizes = x.sym_sizes();
  c10::SymDimVector result(sizes.begin(), sizes.end());
  result.back() = out_features();
  return result;
}

void check_linear(const linear_call& c) {
  TORCH_CHECK_VALUE(
      !c.gated() || (c.weight.sym_size(0) % 2).sym_eq(0).expect_true(__FILE__, __LINE__), c.op,
      ": weight.size(0) must be even for swiglu, which takes rows of gate and then as many of up, "
      "got ",
      c.weight.sym_size(0));
  if (!c.residual) return;
  const SymInt width = c.residual->sym_size(-1);
  TORCH_CHECK_VALUE(width.sym_eq(c.out_features()).expect_true(__FILE__, __LINE__), c.op,
                    ": residual.size(-1) must be ", c.out_features(), ", as y's, got ", width);
}

namespace {

// In float32, or in float64 if x is, rounded once.
Tensor normalized_by_aten(const linear_call& c) {
  const at::ScalarType type = c.x.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor x = c.x.to(wide);
  const Tensor scale = (x.square().mean(-1, /*keepdim=*/true) + c.norm_eps).rsqrt();
  return (x * scale * c.norm_weight->to(wide)).to(type);
}

// x as [rows, in_features], rows at multiples of 16 bytes.
Tensor rows_of(const linear_call& c, const linear_problem& problem) {
  const Tensor x = c.x.reshape({problem.rows, problem.in_features});
  if (why_copied(x) == nullptr) return x;
  const int64_t run = 16 / x.element_size();
  const int64_t stride = (problem.in_features + run - 1) / run * run;
  return at::empty({problem.rows, stride}, x.options()).narrow(1, 0, problem.in_features).copy_(x);
}

std::string why_not_by_kernel(const linear_call& c, const linear_problem& problem) {
  if (std::string why = why_torch(c.x, problem); !why.empty()) return why;
  // A weight is too large to be copied.
  if (const char* why = c.weight.numel() == 0 ? nullptr : why_copied(c.weight)) {
    return c10::str("weight cannot be read where it is: ", why, " (strides ", c.weight.strides(),
                    ")");
  }
  return "";
}

}  // namespace

Tensor linear_by_aten(const linear_call& c, const Tensor& weight) {
  const Tensor x = c.norm_weight ? normalized_by_aten(c) : c.x;
  Tensor y = at::linear(x, weight, c.bias);
  if (c.gated()) {
    const std::vector<Tensor> parts = y.chunk(2, -1);
    y = at::silu(parts[0]) * parts[1];
  }
  return c.residual ? y + *c.residual : y;
}

linear_problem linear_problem_of(const linear_call& c) {
  const int64_t width = c.x.size(-1), rows = c.weight.size(0);
  return {
      .rows = width == 0 ? 0 : c.x.numel() / width,
      .in_features = width,
      .out_features = rows / c.parts(),
      .x_stride = width,
      .weight_stride = rows == 1 ? c.weight.size(1) : c.weight.stride(0),
      .gated = c.gated(),
      .normalized = c.norm_weight.has_value(),
      .norm_eps = c.norm_eps,
      .type = kernel_dtype_or_float(c.x.scalar_type()),
      .weight_is_constant = c.weight_is_constant,
  };
}

decision decide_linear(const kernel& k, const linear_call& c, const linear_problem& problem) {
  const bool takes_more = problem.weight == linear_weight::plain && is_built(k, c.x.device());
  const int64_t most = takes_more ? problem.kMostRows : problem.kFewRows;
  if (problem.rows > most) {
    return leave_to_torch(
        k, c10::str(problem.rows, " rows are more than ", most, ": torch's product is as fast"));
  }
  const decision d = decide(k, c.x.device(), why_not_by_kernel(c, problem));
  if (d.on != nullptr && is_faster_by_torch(problem, *d.on)) {
    return leave_to_torch(k, c10::str("torch's product of ", problem.rows, " rows and a weight of ",
                                      c.weight.size(0), " is faster"));
  }
  if (d.explained && d.on != nullptr) note_tma_copy(c.x, "x");
  return d;
}

Tensor linear_by_kernel(const decision& d, linear_problem problem, const linear_call& c,
                        const Tensor& scale, const Tensor& zero) {
  const Tensor x = rows_of(c, problem), y = c.empty_result();
  Tensor norm_weight = contiguous(c.norm_weight);
  if (reinterpret_cast<uintptr_t>(input(norm_weight)) % 4 != 0) norm_weight = norm_weight.clone();
  problem.x_stride = problem.rows == 1 ? problem.in_features : x.stride(0);
  launch(d, problem,
         linear_tensors{
             .x = input(x),
             .weight = input(c.weight),
             .bias = input(contiguous(c.bias)),
             .residual = input(contiguous(c.residual)),
             .norm_weight = input(norm_weight),
             .y = output(y),
             .weight_scale = input(scale),
             .weight_zero = input(zero),
         });
  return y;
}

}  // namespace thunderkittens
