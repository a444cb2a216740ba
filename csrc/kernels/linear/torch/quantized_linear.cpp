// quantized_linear as a torch op. Where a gradient is needed it is composed of torch's own ops.
#include "binding/op.h"
#include "kernels/linear/torch/linear_call.hpp"

namespace thunderkittens {
namespace {

constexpr int64_t kValuesOfByte = 2, kValuesOfWord = 8;  // of int4

const kernel kQuantizedKernel("quantized_linear", kQuantizedLinear);

// What a call was given.
struct quantized_call {
  const Tensor &x, &weight, &scale;
  const optional_tensor &zero, &bias, &residual;
  const std::string_view& activation;
  const optional_tensor& norm_weight;
  const double& norm_eps;
  const bool& weight_is_constant;

  linear_call linear() const {
    return {"quantized_linear", x, weight, bias, residual, activation, norm_weight, norm_eps,
            weight_is_constant};
  }
  bool is_int4() const { return weight.scalar_type() == at::kByte; }
};

void check_dtype(const char* name, const Tensor& t, at::ScalarType expected, const char* why) {
  TORCH_CHECK_TYPE(t.scalar_type() == expected, "quantized_linear: ", name, " must have dtype ",
                   expected, why, ", got ", t.scalar_type());
}

void check_size(const char* what, const SymInt& got, const SymInt& expected) {
  TORCH_CHECK_VALUE(got.sym_eq(expected).expect_true(__FILE__, __LINE__),
                    "quantized_linear: ", what, " must be ", expected, ", got ", got);
}

void check_int4(const quantized_call& c) {
  const SymInt width = c.x.sym_size(-1);
  check_dtype("scale", c.scale, c.x.scalar_type(), ", x's");
  TORCH_CHECK_VALUE((width % kValuesOfWord).sym_eq(0).expect_true(__FILE__, __LINE__),
                    "quantized_linear: x.size(-1) must be a multiple of ", kValuesOfWord,
                    " with an int4 weight, got ", width);
  check_size("weight.size(1) of int4, two a byte,", c.weight.sym_size(1), width / kValuesOfByte);
  TORCH_CHECK_VALUE(c.scale.dim() == 2, "quantized_linear: scale must have shape [",
                    c.weight.sym_size(0), ", groups] with an int4 weight, got ",
                    c.scale.sym_sizes());
  check_size("scale.size(0)", c.scale.sym_size(0), c.weight.sym_size(0));
  const SymInt groups = c.scale.sym_size(1);
  const bool whole = groups.sym_gt(0).expect_true(__FILE__, __LINE__) &&
                     (width % groups).sym_eq(0).expect_true(__FILE__, __LINE__);
  TORCH_CHECK_VALUE(whole, "quantized_linear: scale.size(1) must divide x.size(-1) ", width,
                    ", got ", groups);
  if (!c.zero) return;
  check_dtype("zero", *c.zero, at::kByte, "");
  TORCH_CHECK_VALUE(c.zero->sym_sizes().equals(c.scale.sym_sizes()),
                    "quantized_linear: zero must have shape ", c.scale.sym_sizes(),
                    ", scale's, got ", c.zero->sym_sizes());
}

void check_quantized(const quantized_call& c) {
  TORCH_CHECK_TYPE(c.is_int4() || c.weight.scalar_type() == at::kFloat8_e4m3fn,
                   "quantized_linear: weight must have dtype float8_e4m3fn, or uint8 (two int4 a "
                   "byte), got ",
                   c.weight.scalar_type());
  TORCH_CHECK_VALUE(c.weight.dim() == 2, "quantized_linear: weight must have 2 dimensions, got ",
                    c.weight.sym_sizes());
  if (c.is_int4()) {
    check_int4(c);
  } else {
    check_dtype("scale", c.scale, at::kFloat, " with a float8_e4m3fn weight");
    check_size("weight.size(1)", c.weight.sym_size(1), c.x.sym_size(-1));
    TORCH_CHECK_VALUE(c.scale.dim() == 1, "quantized_linear: scale must have shape [",
                      c.weight.sym_size(0), "] with a float8_e4m3fn weight, got ",
                      c.scale.sym_sizes());
    check_size("scale.size(0)", c.scale.sym_size(0), c.weight.sym_size(0));
    TORCH_CHECK_VALUE(!c.zero, "quantized_linear: zero must be None with a float8_e4m3fn weight");
  }
  if (c.bias) check_size("bias.size(0)", c.bias->sym_size(0), c.weight.sym_size(0));
  check_linear(c.linear());
}

// ---- ATen ---------------------------------------------------------------------------------------

// Numbers of int4, [N, K].
Tensor unpacked(const Tensor& bytes) {
  const SymInt rows = bytes.sym_size(0), width = bytes.sym_size(1) * kValuesOfByte;
  const Tensor nibbles = at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1);
  const SymInt parts[] = {rows, width / kValuesOfWord, 2, kValuesOfWord / 2};
  return nibbles.reshape_symint(parts).transpose(2, 3).reshape_symint({rows, width});
}

// The weight in x's dtype.
Tensor dequantized(const quantized_call& c) {
  const at::ScalarType type = c.x.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  if (!c.is_int4()) return (c.weight.to(wide) * c.scale.to(wide).unsqueeze(-1)).to(type);
  const Tensor n = unpacked(c.weight).to(wide);
  const SymInt rows = n.sym_size(0), groups = c.scale.sym_size(1);
  const SymInt grouped[] = {rows, groups, n.sym_size(1) / groups};
  const Tensor scale = c.scale.to(wide).unsqueeze(-1);
  const Tensor by_group = n.reshape_symint(grouped);
  const Tensor shifted = c.zero ? by_group - c.zero->to(wide).unsqueeze(-1) : by_group - 8;
  return (shifted * scale).reshape_symint(n.sym_sizes()).to(type);
}

Tensor quantized_by_aten(const quantized_call& c) {
  return linear_by_aten(c.linear(), dequantized(c));
}

// ---- The kernel ---------------------------------------------------------------------------------

Tensor compute_quantized(const quantized_call& c) {
  const bool is_empty = c.x.numel() == 0 || c.weight.numel() == 0;
  if (is_empty && explaining() == nullptr) return quantized_by_aten(c);
  const linear_call call = c.linear();
  linear_problem problem = linear_problem_of(call);
  problem.weight = c.is_int4() ? linear_weight::int4 : linear_weight::e4m3;
  if (c.is_int4()) problem.group = problem.in_features / c.scale.size(1);
  const decision d = decide_linear(kQuantizedKernel, call, problem);
  if (d.explained) return {};
  if (d.on == nullptr) return quantized_by_aten(c);
  const Tensor scale = c.scale.contiguous(), zero = c.zero ? c.zero->contiguous() : Tensor();
  // A copy of them would be written by the kernel in front.
  problem.weight_is_constant &= scale.is_same(c.scale) && (!c.zero || zero.is_same(*c.zero));
  return linear_by_kernel(d, problem, call, scale, zero);
}

// ---- Op -----------------------------------------------------------------------------------------

struct quantized_linear {
  static constexpr const char* name = "quantized_linear";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr bool kRecords = true;
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*,K"),
      tensor("weight"),
      tensor("scale"),
      optional(tensor("zero")).otherwise("None"),
      optional(tensor("bias", dtype_rule::same, "O")).otherwise("None"),
      optional(tensor("residual", dtype_rule::same, "*,N")).otherwise("None"),
      word("activation", "swiglu", "none").otherwise("\"none\""),
      optional(tensor("norm_weight", dtype_rule::same, "K")).otherwise("None"),
      number("norm_eps", 0.0).otherwise("1e-6"),
      boolean("weight_is_constant").otherwise("False"),
  };
  static constexpr result_list results{result{.name = "y", .shape = "*,N"}};

  static void check_options(const auto&... args) { check_quantized({args...}); }
  static tensor_array<1> meta(const auto&... args) {
    return {quantized_call{args...}.linear().empty_result()};
  }
  static tensor_array<1> compute(const auto&... args) { return {compute_quantized({args...})}; }

  static tensor_array<1> record(const call_to_record&, const auto&... args) {
    return {quantized_by_aten({args...})};
  }

  // In autocast's dtype, as torch.linear is; the scale of e4m3 stays float32. One that is cast is
  // written by the kernel in front.
  static auto in_autocast(const auto& next, const auto& cast, const Tensor& x, const Tensor& weight,
                          const Tensor& scale, const optional_tensor& zero,
                          const optional_tensor& bias, const optional_tensor& residual,
                          std::string_view activation, const optional_tensor& norm_weight,
                          double norm_eps, bool weight_is_constant) {
    const Tensor cast_scale = weight.scalar_type() == at::kByte ? Tensor(cast(scale)) : scale;
    return next(cast(x), weight, cast_scale, zero, cast(bias), cast(residual), activation,
                cast(norm_weight), norm_eps, weight_is_constant && cast_scale.is_same(scale));
  }
};

const register_ops<quantized_linear> registered_quantized;

}  // namespace
}  // namespace thunderkittens
