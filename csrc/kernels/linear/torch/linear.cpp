// linear as a torch op. Where a gradient is needed it is composed of torch's own ops.
#include <ATen/ATen.h>

#include "binding/autocast.h"
#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/op.h"
#include "binding/tma_operand.h"
#include "kernels/linear/linear.h"

namespace thunderkittens {
namespace {

using at::Tensor;
using optional_tensor = std::optional<Tensor>;
using one_tensor = std::array<Tensor, 1>;

const kernel kKernel("linear", kLinear);

// What a call was given.
struct linear_call {
  const Tensor &x, &weight;
  const optional_tensor &bias, &residual;
  const std::string_view& activation;
  const optional_tensor& norm_weight;
  const double& norm_eps;

  bool gated() const { return activation == "swiglu"; }
  int64_t parts() const { return gated() ? 2 : 1; }  // of the weight's rows
  c10::SymInt out_features() const { return weight.sym_size(0) / parts(); }
  c10::SymDimVector result_sizes() const {
    const auto sizes = x.sym_sizes();
    c10::SymDimVector result(sizes.begin(), sizes.end());
    result.back() = out_features();
    return result;
  }
  Tensor empty_result() const { return at::empty_symint(result_sizes(), x.options()); }
};

void check_call_of(const linear_call& c) {
  TORCH_CHECK_VALUE(
      !c.gated() || (c.weight.sym_size(0) % 2).sym_eq(0).expect_true(__FILE__, __LINE__),
      "linear: weight.size(0) must be even for swiglu, which takes rows of gate and then as many "
      "of up, got ",
      c.weight.sym_size(0));
  if (!c.residual) return;
  const c10::SymInt width = c.residual->sym_size(-1);
  TORCH_CHECK_VALUE(width.sym_eq(c.out_features()).expect_true(__FILE__, __LINE__),
                    "linear: residual.size(-1) must be ", c.out_features(), ", as y's, got ",
                    width);
}

// ---- ATen ---------------------------------------------------------------------------------------

// In float32, or in float64 if x is, rounded once.
Tensor normalized_by_aten(const linear_call& c) {
  const at::ScalarType type = c.x.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor x = c.x.to(wide);
  const Tensor scale = (x.square().mean(-1, /*keepdim=*/true) + c.norm_eps).rsqrt();
  return (x * scale * c.norm_weight->to(wide)).to(type);
}

Tensor linear_by_aten(const linear_call& c) {
  const Tensor x = c.norm_weight ? normalized_by_aten(c) : c.x;
  Tensor y = at::linear(x, c.weight, c.bias);
  if (c.gated()) {
    const std::vector<Tensor> parts = y.chunk(2, -1);
    y = at::silu(parts[0]) * parts[1];
  }
  return c.residual ? y + *c.residual : y;
}

// ---- The kernel ---------------------------------------------------------------------------------

linear_problem problem_of(const linear_call& c) {
  const int64_t width = c.x.size(-1), rows = c.weight.size(0);
  return {
      .rows = width == 0 ? 0 : c.x.numel() / width,
      .in_features = width,
      .out_features = rows / c.parts(),
      .x_stride = width,
      .weight_stride = rows == 1 ? width : c.weight.stride(0),
      .gated = c.gated(),
      .normalized = c.norm_weight.has_value(),
      .norm_eps = c.norm_eps,
      .type = kernel_dtype(c.x.scalar_type()).value_or(dtype::float32),
  };
}

std::string why_torch(const linear_call& c, const linear_problem& problem) {
  if (c.x.scalar_type() == at::kDouble) return "float64 is computed by torch";
  if (std::string why = why_unsupported(problem); !why.empty()) return why;
  // A weight is too large to be copied.
  if (const char* why = c.weight.numel() == 0 ? nullptr : why_copied(c.weight)) {
    return c10::str("weight cannot be read where it is: ", why, " (strides ", c.weight.strides(),
                    ")");
  }
  return "";
}

// x as [rows, in_features], rows at multiples of 16 bytes.
Tensor rows_of(const linear_call& c, const linear_problem& problem) {
  const Tensor x = c.x.reshape({problem.rows, problem.in_features});
  if (why_copied(x) == nullptr) return x;
  const int64_t run = 16 / x.element_size();
  const int64_t stride = (problem.in_features + run - 1) / run * run;
  return at::empty({problem.rows, stride}, x.options()).narrow(1, 0, problem.in_features).copy_(x);
}

Tensor linear_by_kernel(const decision& d, linear_problem problem, const linear_call& c) {
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
         },
         c.x.device());
  return y;
}

decision decide_linear(const linear_call& c, const linear_problem& problem) {
  if (problem.rows > problem.kMostRows) {
    return leave_to_torch(kKernel, c10::str(problem.rows, " rows are more than ", problem.kMostRows,
                                            ": torch's product is as fast"));
  }
  return decide(kKernel, c.x.device(), why_torch(c, problem));
}

Tensor compute_linear(const linear_call& c) {
  const bool is_empty = c.x.numel() == 0 || c.weight.numel() == 0;
  if (is_empty && explaining() == nullptr) return linear_by_aten(c);
  const linear_problem problem = problem_of(c);
  const decision d = decide_linear(c, problem);
  if (d.explained) {
    if (d.on != nullptr) note_tma_copy(c.x, "x");
    return {};
  }
  return d.on == nullptr ? linear_by_aten(c) : linear_by_kernel(d, problem, c);
}

// ---- Op -----------------------------------------------------------------------------------------

struct linear {
  static constexpr const char* name = "linear";
  static constexpr bool kRecords = true;
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*,K"),
      tensor("weight", dtype_rule::same, "O,K"),
      optional(tensor("bias", dtype_rule::same, "O")).otherwise("None"),
      optional(tensor("residual", dtype_rule::same, "*,N")).otherwise("None"),
      word("activation", "swiglu", "none").otherwise("\"none\""),
      optional(tensor("norm_weight", dtype_rule::same, "K")).otherwise("None"),
      number("norm_eps", 0.0).otherwise("1e-6"),
  };
  static constexpr result_list results{result{.name = "y", .shape = "*,N"}};

  static void check_options(const auto&... args) { check_call_of({args...}); }
  static one_tensor meta(const auto&... args) { return {linear_call{args...}.empty_result()}; }
  static one_tensor compute(const auto&... args) { return {compute_linear({args...})}; }

  static one_tensor record(const call_to_record&, const auto&... args) {
    return {linear_by_aten({args...})};
  }
};

const register_ops<linear> registered;
const register_autocast<linear> registered_autocast;

}  // namespace
}  // namespace thunderkittens
