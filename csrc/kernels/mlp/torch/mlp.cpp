// mlp as torch ops.
//
//   hidden = x · fc1_weightᵀ + fc1_bias,   activated = gelu(hidden),
//   y = activated · fc2_weightᵀ + fc2_bias
//
// `mlp` keeps nothing else; `mlp_forward` also returns hidden and activated, for `mlp_backward`.
// The products beside gelu are the kernels', the others ATen's, as all are where there is no
// kernel.
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/op.h"
#include "binding/tma_operand.h"
#include "kernels/activation/torch/activation.hpp"
#include "kernels/mlp/mlp.h"

namespace thunderkittens {
namespace {

const kernel kMlpKernel("mlp", kLinearGelu);
const kernel kMlpBackwardKernel("mlp_backward", kLinearGeluBackward);

// [..., width] as the kernels read it: rows where they lie, or of a contiguous copy, which `read`
// makes.
struct mlp_rows {
  const Tensor& given;
  int64_t width, rows, stride;
  bool in_place;

  explicit mlp_rows(const Tensor& t)
      : given(t), width(t.size(-1)), rows(width == 0 ? 0 : t.numel() / width) {
    const std::optional<int64_t> between = row_stride(t);
    in_place = between && why_copied(t) == nullptr;
    stride = in_place ? *between : width;
  }
  Tensor read() const { return in_place ? given : tma_operand(given.contiguous()); }
};

// The same of a weight, [out, in].
struct mlp_weight {
  const Tensor& given;
  bool by_rows;  // whether rows are contiguous, else columns are
  int64_t stride;

  explicit mlp_weight(const Tensor& weight)
      : given(weight), by_rows(!is_transposed(weight) || why_copied(weight.t()) != nullptr) {
    stride = by_rows ? mlp_rows(weight).stride : weight.stride(1);
  }
  Tensor read() const { return by_rows ? mlp_rows(given).read() : given; }

  // As transformers' Conv1D and a view by t() have it.
  static bool is_transposed(const Tensor& t) {
    return t.sym_stride(0) == 1 && t.sym_stride(1) != 1 && t.sym_size(0) != 1;
  }
};

Tensor rows_of(const Tensor& t) { return t.dim() == 1 ? t.unsqueeze(0) : t.flatten(0, -2); }
// [..., columns], of the rows of x.
Tensor empty_beside(const Tensor& x, const SymInt& columns) {
  c10::SymDimVector sizes(x.sym_sizes().begin(), x.sym_sizes().end());
  sizes.back() = columns;
  return at::empty_symint(sizes, x.options());
}
bool has_products(const Tensor& x, const Tensor& weight) {
  return x.numel() != 0 && weight.numel() != 0;
}

// Of a problem of either direction.
decision decide_mlp(const kernel& k, const Tensor& x, const auto& problem) {
  const decision d = decide(k, x, problem);
  if (d.on == nullptr || !is_faster_by_torch(problem.rows, problem.inner, *d.on)) return d;
  return leave_to_torch(k, c10::str("torch's products of ", problem.rows, " rows and ",
                                    problem.inner, " terms are as fast"));
}

// ---- Forward ------------------------------------------------------------------------------------

struct mlp_call {
  const Tensor &x, &fc1_weight;
  const optional_tensor& fc1_bias;
  const Tensor& fc2_weight;
  const optional_tensor& fc2_bias;
  std::string_view approximate;
};

struct hidden_layer {
  Tensor hidden, activated;
};

hidden_layer hidden_by_aten(const mlp_call& c) {
  const Tensor hidden = at::linear(c.x, c.fc1_weight, c.fc1_bias);
  return {hidden, activations::activate(activations::function_of(c.approximate), hidden)};
}

tensor_array<3> compute_mlp(const mlp_call& c, bool wants_all) {
  const auto with_output = [&](const hidden_layer& h) {
    return tensor_array<3>{exactly_contiguous(at::linear(h.activated, c.fc2_weight, c.fc2_bias)),
                           wants_all ? exactly_contiguous(h.hidden) : Tensor(),
                           exactly_contiguous(h.activated)};
  };
  if (!has_products(c.x, c.fc1_weight) && explaining() == nullptr) {
    return with_output(hidden_by_aten(c));
  }
  const mlp_rows x(c.x);
  const mlp_weight weight(c.fc1_weight);
  const linear_gelu_problem problem{
      .rows = x.rows,
      .inner = x.width,
      .outer = c.fc1_weight.size(0),
      .x_stride = x.stride,
      .weight_stride = weight.stride,
      .k_major = weight.by_rows,
      .function = activations::function_of(c.approximate),
      .type = kernel_dtype_or_float(c.x.scalar_type()),
  };
  const decision d = decide_mlp(kMlpKernel, c.x, problem);
  if (d.explained) {
    if (d.on != nullptr) note_tma_copy(c.x, "x");
    return {};
  }
  if (d.on == nullptr) return with_output(hidden_by_aten(c));
  const hidden_layer h{wants_all ? empty_beside(c.x, problem.outer) : Tensor(),
                       empty_beside(c.x, problem.outer)};
  launch(d, problem,
         linear_gelu_tensors{
             .x = input(x.read()),
             .weight = input(weight.read()),
             .bias = input(contiguous(c.fc1_bias)),
             .hidden = output(h.hidden),
             .activated = output(h.activated),
         });
  return with_output(h);
}

// ---- Backward -----------------------------------------------------------------------------------

struct mlp_backward_call {
  const Tensor &dy, &x, &fc1_weight;
  const optional_tensor& fc1_bias;
  const Tensor& fc2_weight;
  const optional_tensor& fc2_bias;
  const Tensor &hidden, &activated;
  std::array<bool, 5> needs;  // of x, fc1_weight, fc1_bias, fc2_weight, fc2_bias
  std::string_view approximate;

  // Of x or of the first layer, in front of gelu.
  bool needs_dhidden() const { return needs[0] || needs[1] || needs[2]; }
};

// dyᵀ · x, with the strides of the weight.
Tensor weight_gradient(const Tensor& dy, const Tensor& x, const Tensor& weight) {
  if (mlp_weight::is_transposed(weight)) return at::mm(x.t(), dy).t();
  return at::mm(dy.t(), x);
}
Tensor empty_like_weight(const Tensor& weight) {
  if (!mlp_weight::is_transposed(weight)) return empty_contiguous(weight);
  return at::empty_symint({weight.sym_size(1), weight.sym_size(0)}, weight.options()).t();
}

// In float32 where it is narrower, rounded once.
Tensor column_sums_by_aten(const Tensor& rows) {
  return rows.sum(0, /*keepdim=*/false, rows.scalar_type());
}

struct hidden_gradients {
  Tensor dhidden, dbias;  // [rows, F], [F]
};

hidden_gradients hidden_gradients_by_aten(const mlp_backward_call& c, const Tensor& dy) {
  const Tensor dactivated = at::mm(dy, c.fc2_weight);
  const Tensor dhidden = activations::activate_backward(activations::function_of(c.approximate),
                                                        dactivated, rows_of(c.hidden));
  return {dhidden, c.needs[2] ? column_sums_by_aten(dhidden) : Tensor()};
}

hidden_gradients hidden_gradients_by_kernel(const decision& d,
                                            const linear_gelu_backward_problem& problem,
                                            const mlp_backward_call& c, const Tensor& dy,
                                            const mlp_weight& weight) {
  const Tensor dhidden = at::empty({problem.rows, problem.outer}, dy.options());
  const Tensor dbias = c.needs[2] ? at::empty({problem.outer}, dy.options()) : Tensor();
  launch(d, problem,
         linear_gelu_backward_tensors{
             .dy = input(dy),
             .weight = input(weight.read()),
             .hidden = input(c.hidden.contiguous()),
             .dhidden = output(dhidden),
             .dbias = output(dbias),
         });
  return {dhidden, dbias};
}

Tensor column_sums_by_kernel(const decision& d, const Tensor& rows) {
  const column_sums_problem problem{.rows = rows.size(0),
                                    .width = rows.size(1),
                                    .stride = mlp_rows(rows).stride,
                                    .type = *kernel_dtype(rows.scalar_type())};
  if (!why_unsupported(problem).empty()) return column_sums_by_aten(rows);
  const Tensor sums = at::empty({problem.width}, rows.options());
  launch(d, problem, column_sums_tensors{.x = input(rows), .sums = output(sums)});
  return sums;
}

// What follows from the gradient of y and that of the hidden layer.
tensor_array<5> gradients_of_layers(const mlp_backward_call& c, const Tensor& dy,
                                    const hidden_gradients& h, const auto& sum_columns) {
  tensor_array<5> results;
  const Tensor x = rows_of(c.x);
  if (c.needs[0]) {
    results[0] = exactly_contiguous(at::mm(h.dhidden, c.fc1_weight).view_symint(c.x.sym_sizes()));
  }
  if (c.needs[1]) results[1] = weight_gradient(h.dhidden, x, c.fc1_weight);
  if (c.needs[2]) results[2] = h.dbias;
  if (c.needs[3]) results[3] = weight_gradient(dy, rows_of(c.activated), c.fc2_weight);
  if (c.needs[4]) results[4] = sum_columns(dy);
  return results;
}

tensor_array<5> compute_mlp_backward(const mlp_backward_call& c) {
  const auto by_aten = [&] {
    const Tensor rows = rows_of(c.dy);
    const hidden_gradients h =
        c.needs_dhidden() ? hidden_gradients_by_aten(c, rows) : hidden_gradients();
    return gradients_of_layers(c, rows, h, column_sums_by_aten);
  };
  if (!has_products(c.dy, c.fc2_weight) && explaining() == nullptr) return by_aten();
  const mlp_rows dy(c.dy);
  const mlp_weight weight(c.fc2_weight);
  const linear_gelu_backward_problem problem{
      .rows = dy.rows,
      .inner = dy.width,
      .outer = c.fc2_weight.size(1),
      .dy_stride = dy.stride,
      .weight_stride = weight.stride,
      .k_major = !weight.by_rows,
      .function = activations::function_of(c.approximate),
      .type = kernel_dtype_or_float(c.dy.scalar_type()),
  };
  const decision d = decide_mlp(kMlpBackwardKernel, c.dy, problem);
  if (d.explained) return {};
  if (d.on == nullptr) return by_aten();
  const Tensor rows = rows_of(dy.read());  // copied once, for all products
  const hidden_gradients h = c.needs_dhidden()
                                 ? hidden_gradients_by_kernel(d, problem, c, rows, weight)
                                 : hidden_gradients();
  return gradients_of_layers(c, rows, h,
                             [&](const Tensor& of) { return column_sums_by_kernel(d, of); });
}

// ---- Ops ----------------------------------------------------------------------------------------

struct mlp_backward : gradients_of<"mlp"> {
  static constexpr auto arguments =
      argument_list{
          tensor("dy", dtype_rule::floating, "*,N"),
          tensor("x", dtype_rule::same, "*,K"),
          tensor("fc1_weight", dtype_rule::same, "F,K"),
          optional(tensor("fc1_bias", dtype_rule::same, "F")).as_constant(),
          tensor("fc2_weight", dtype_rule::same, "N,F"),
          optional(tensor("fc2_bias", dtype_rule::same, "N")).as_constant(),
          tensor("hidden", dtype_rule::same, "*,F").as_constant(),
          tensor("activated", dtype_rule::same, "*,F").as_constant(),
          needs<5>(),
      } +
      activations::kApproximate;
  static constexpr result_list results{
      like("dx", "x"), like("dfc1_weight", "fc1_weight"), like("dfc1_bias", "fc1_bias"),
      like("dfc2_weight", "fc2_weight"), like("dfc2_bias", "fc2_bias")};

  // Gradients of weights have the weights' strides, so that no leaf copies them.
  static tensor_array<5> meta(const auto&... args) {
    const mlp_backward_call c{args...};
    const auto wanted = [&](size_t i, const auto& make) {
      return c.needs[i] ? make() : none(c.dy);
    };
    return {wanted(0, [&] { return empty_contiguous(c.x); }),
            wanted(1, [&] { return empty_like_weight(c.fc1_weight); }),
            wanted(2, [&] { return empty_contiguous(*c.fc1_bias); }),
            wanted(3, [&] { return empty_like_weight(c.fc2_weight); }),
            wanted(4, [&] { return empty_contiguous(*c.fc2_bias); })};
  }
  static tensor_array<5> compute(const auto&... args) { return compute_mlp_backward({args...}); }
};

struct mlp {
  using backward = mlp_backward;
  static constexpr const char* name = "mlp";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr auto arguments =
      argument_list{
          tensor("x", dtype_rule::floating, "*,K"),
          tensor("fc1_weight", dtype_rule::same, "F,K"),
          optional(tensor("fc1_bias", dtype_rule::same, "F")),
          tensor("fc2_weight", dtype_rule::same, "N,F"),
          optional(tensor("fc2_bias", dtype_rule::same, "N")),
      } +
      activations::kApproximate;
  static constexpr result_list results{result{.name = "y", .shape = "*,N"},
                                       result{.name = "hidden", .shape = "*,F"},
                                       result{.name = "activated", .shape = "*,F"}};
  static constexpr size_t kReturned = 1;

  static tensor_array<3> meta(const auto&... args) {
    const mlp_call c{args...};
    const SymInt width = c.fc1_weight.sym_size(0);
    return {empty_beside(c.x, c.fc2_weight.sym_size(0)), empty_beside(c.x, width),
            empty_beside(c.x, width)};
  }
  static tensor_array<3> compute(bool wants_all, const auto&... args) {
    return compute_mlp({args...}, wants_all);
  }
};

const register_ops<mlp, mlp_backward> registered_mlp;

}  // namespace
}  // namespace thunderkittens
