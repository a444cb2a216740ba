// linear as a torch op. Where a gradient is needed it is composed of torch's own ops.
#include "binding/op.h"
#include "kernels/linear/torch/linear_call.hpp"

namespace thunderkittens {
namespace {

const kernel kKernel("linear", kLinear), kRowsKernel("linear", kLinearRows);

Tensor compute_linear(const linear_call& c) {
  const bool is_empty = c.x.numel() == 0 || c.weight.numel() == 0;
  if (is_empty && explaining() == nullptr) return linear_by_aten(c, c.weight);
  const linear_problem problem = linear_problem_of(c);
  const kernel& k = problem.rows <= problem.kFewRows ? kKernel : kRowsKernel;
  const decision d = decide_linear(k, c, problem);
  if (d.explained) return {};
  return d.on == nullptr ? linear_by_aten(c, c.weight) : linear_by_kernel(d, problem, c);
}

// ---- Op -----------------------------------------------------------------------------------------

struct linear {
  static constexpr const char* name = "linear";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr bool kRecords = true;
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*,K"),
      tensor("weight", dtype_rule::same, "O,K"),
      optional(tensor("bias", dtype_rule::same, "O")).otherwise("None"),
      optional(tensor("residual", dtype_rule::same, "*,N")).otherwise("None"),
      word("activation", "swiglu", "none").otherwise("\"none\""),
      optional(tensor("norm_weight", dtype_rule::same, "K")).otherwise("None"),
      number("norm_eps", 0.0).otherwise("1e-6"),
      boolean("weight_is_constant").otherwise("False"),
  };
  static constexpr result_list results{result{.name = "y", .shape = "*,N"}};

  static void check_options(const auto&... args) { check_linear({name, args...}); }
  static tensor_array<1> meta(const auto&... args) {
    return {linear_call{name, args...}.empty_result()};
  }
  static tensor_array<1> compute(const auto&... args) { return {compute_linear({name, args...})}; }

  static tensor_array<1> record(const call_to_record&, const auto&... args) {
    const linear_call c{name, args...};
    return {linear_by_aten(c, c.weight)};
  }

  // A weight that is cast is written by the kernel in front.
  static auto in_autocast(const auto& next, const auto& cast, const Tensor& x, const Tensor& weight,
                          const optional_tensor& bias, const optional_tensor& residual,
                          std::string_view activation, const optional_tensor& norm_weight,
                          double norm_eps, bool weight_is_constant) {
    const Tensor cast_weight = cast(weight);
    return next(cast(x), cast_weight, cast(bias), cast(residual), activation, cast(norm_weight),
                norm_eps, weight_is_constant && cast_weight.is_same(weight));
  }
};

const register_ops<linear> registered;

}  // namespace
}  // namespace thunderkittens
