// layer_norm as a torch op: schema, checks, outputs, backends, autograd, fakes.
//
//   y = (x − mean) · rstd · weight + bias,   rstd = 1 / sqrt(var + eps),   over the last dimension
//
// Three ops: `layer_norm` is the public one and keeps no statistics; `layer_norm_forward` also
// returns mean and rstd [x.shape[:-1]] in float32 (float64 for float64), for `layer_norm_backward`.
// No autocast rule: mixed dtypes (float32 weights with 16-bit x) are computed in float32 and
// rounded once.
#include "kernels/norm/layer_norm.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/arguments.h"
#include "binding/autograd.h"
#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/op.h"

namespace thunderkittens {
namespace {

using at::Tensor;
using optional_tensor = std::optional<Tensor>;
using three_tensors = std::tuple<Tensor, Tensor, Tensor>;

constexpr arguments kForwardArguments({
    tensor("x", dtype_rule::floating, "*,N"),
    optional(tensor("weight", dtype_rule::same_or_float32, "N")),
    optional(tensor("bias", dtype_rule::same_or_float32, "N")),
    number("eps", 0.0),
});
constexpr arguments kBackwardArguments({
    tensor("dy", dtype_rule::floating, "*,N"),
    tensor("x", dtype_rule::same, "*,N"),
    optional(tensor("weight", dtype_rule::same_or_float32, "N")),
    optional(tensor("bias", dtype_rule::same_or_float32, "N")),
    tensor("mean", dtype_rule::statistics, "*"),
    tensor("rstd", dtype_rule::statistics, "*"),
});
constexpr argument_table kForwardTable = kForwardArguments.table("layer_norm");
constexpr argument_table kBackwardTable = kBackwardArguments.table("layer_norm_backward");
const enter_arguments enter_forward(kForwardTable), enter_backward(kBackwardTable);

const kernel kForwardKernel("layer_norm", "layer_norm_forward");
const kernel kBackwardKernel("layer_norm_backward", "layer_norm_backward");

// Why the kernels do not take this x; "" when they do.
std::string why_unsupported(const Tensor& x) {
  if (!kernel_dtype(x.scalar_type())) return "float64 is computed by torch";
  if (x.size(-1) > kLayerNormMaxWidth) {
    return c10::str("width ", x.size(-1), " is above ", kLayerNormMaxWidth);
  }
  return "";
}

at::ScalarType statistics_dtype(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Tensor empty_statistics(const Tensor& x) {
  return at::empty_symint(x.sym_sizes().slice(0, x.dim() - 1),
                          x.options().dtype(statistics_dtype(x)));
}

// Contiguous whatever the strides of `like`.
Tensor empty_contiguous(const Tensor& like) {
  return at::empty_symint(like.sym_sizes(), like.options());
}

Tensor none(const Tensor& x) { return at::empty({0}, x.options()); }

dtype dtype_of(const optional_tensor& t, dtype otherwise) {
  return t ? *kernel_dtype(t->scalar_type()) : otherwise;
}

// ---- ATen ---------------------------------------------------------------------------------------

// The dtype in which ATen computes: x's own where torch has a kernel of that type with float32
// statistics, else float32, rounded once at the end.
at::ScalarType aten_dtype(const Tensor& x, const optional_tensor& weight,
                          const optional_tensor& bias) {
  const at::ScalarType type = x.scalar_type();
  const bool agree =
      (!weight || weight->scalar_type() == type) && (!bias || bias->scalar_type() == type);
  return agree && x.is_cuda() ? type : statistics_dtype(x);
}

optional_tensor to(const optional_tensor& t, at::ScalarType type) {
  return t ? optional_tensor(t->to(type)) : std::nullopt;
}

three_tensors forward_aten(const Tensor& x, const optional_tensor& weight,
                           const optional_tensor& bias, double eps) {
  const at::ScalarType type = aten_dtype(x, weight, bias);
  const auto [y, mean, rstd] =
      at::native_layer_norm(x.to(type), {x.size(-1)}, to(weight, type), to(bias, type), eps);
  const auto statistics = x.sizes().slice(0, x.dim() - 1);
  return {y.to(x.scalar_type()).contiguous(), mean.reshape(statistics), rstd.reshape(statistics)};
}

three_tensors backward_aten(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                            const optional_tensor& bias, const Tensor& mean, const Tensor& rstd,
                            std::array<bool, 3> needs) {
  const at::ScalarType type = aten_dtype(x, weight, bias);
  const auto [dx, dweight, dbias] =
      at::native_layer_norm_backward(dy.to(type), x.to(type), {x.size(-1)}, mean.unsqueeze(-1),
                                     rstd.unsqueeze(-1), to(weight, type), to(bias, type), needs);
  return {needs[0] ? dx.to(x.scalar_type()).contiguous() : none(x),
          needs[1] ? dweight.to(weight->scalar_type()) : none(x),
          needs[2] ? dbias.to(bias->scalar_type()) : none(x)};
}

// ---- Kernels ------------------------------------------------------------------------------------

// mean and rstd: [rows] float32, or undefined when nobody wants them.
void forward_kernel(const decision& d, const Tensor& x, const optional_tensor& weight,
                    const optional_tensor& bias, double eps, const Tensor& y, const Tensor& mean,
                    const Tensor& rstd) {
  const rows_view rows = as_rows(x);
  const optional_tensor w = weight ? optional_tensor(weight->contiguous()) : std::nullopt;
  const optional_tensor b = bias ? optional_tensor(bias->contiguous()) : std::nullopt;
  const dtype type = *kernel_dtype(x.scalar_type());
  launch(d,
         layer_norm_forward_params{
             .x = rows.tensor.const_data_ptr(),
             .weight = w ? w->const_data_ptr() : nullptr,
             .bias = b ? b->const_data_ptr() : nullptr,
             .y = y.mutable_data_ptr(),
             .mean = mean.defined() ? mean.mutable_data_ptr<float>() : nullptr,
             .rstd = rstd.defined() ? rstd.mutable_data_ptr<float>() : nullptr,
             .rows = x.numel() / x.size(-1),
             .width = x.size(-1),
             .x_stride = rows.stride,
             .eps = static_cast<float>(eps),
             .type = type,
             .weight_type = dtype_of(w, type),
             .bias_type = dtype_of(b, type),
         },
         x.device());
}

three_tensors backward_kernel(const decision& d, const Tensor& dy, const Tensor& x,
                              const optional_tensor& weight, const optional_tensor& bias,
                              const Tensor& mean, const Tensor& rstd, std::array<bool, 3> needs) {
  const int64_t width = x.size(-1), rows = x.numel() / width;
  const rows_view dy_rows = as_rows(dy), x_rows = as_rows(x);
  const optional_tensor w = weight ? optional_tensor(weight->contiguous()) : std::nullopt;
  const Tensor means = mean.contiguous(), rstds = rstd.contiguous();
  const Tensor dx = needs[0] ? empty_contiguous(x) : none(x);
  const Tensor dweight = needs[1] ? empty_contiguous(*weight) : none(x);
  const Tensor dbias = needs[2] ? empty_contiguous(*bias) : none(x);
  const int64_t partial_rows = layer_norm_partial_rows(rows, width, multiprocessors(d, x.device()));
  const Tensor partial = needs[1] || needs[2]
                             ? at::empty({2, partial_rows, width}, x.options().dtype(at::kFloat))
                             : Tensor();
  const dtype type = *kernel_dtype(x.scalar_type());
  launch(d,
         layer_norm_backward_params{
             .dy = dy_rows.tensor.const_data_ptr(),
             .x = x_rows.tensor.const_data_ptr(),
             .weight = w ? w->const_data_ptr() : nullptr,
             .mean = means.const_data_ptr<float>(),
             .rstd = rstds.const_data_ptr<float>(),
             .dx = needs[0] ? dx.mutable_data_ptr() : nullptr,
             .dweight = needs[1] ? dweight.mutable_data_ptr() : nullptr,
             .dbias = needs[2] ? dbias.mutable_data_ptr() : nullptr,
             .partial = partial.defined() ? partial.mutable_data_ptr<float>() : nullptr,
             .partial_rows = partial_rows,
             .rows = rows,
             .width = width,
             .dy_stride = dy_rows.stride,
             .x_stride = x_rows.stride,
             .type = type,
             .weight_type = dtype_of(weight, type),
             .bias_type = dtype_of(bias, type),
         },
         x.device());
  return {dx, dweight, dbias};
}

// ---- Ops ----------------------------------------------------------------------------------------

three_tensors compute_forward(const Tensor& x, const optional_tensor& weight,
                              const optional_tensor& bias, double eps, bool statistics) {
  check(kForwardTable, {x, weight, bias, eps});
  if (x.numel() == 0 && explaining() == nullptr) {
    return {empty_contiguous(x), empty_statistics(x).zero_(), empty_statistics(x).zero_()};
  }
  const decision d = decide(kForwardKernel, x.device(), why_unsupported(x));
  if (d.explained) {
    if (d.run != nullptr) note_copy(x, "x");
    return {none(x), none(x), none(x)};
  }
  if (d.run == nullptr) return forward_aten(x, weight, bias, eps);
  const Tensor y = empty_contiguous(x);
  const Tensor mean = statistics ? empty_statistics(x) : Tensor();
  const Tensor rstd = statistics ? empty_statistics(x) : Tensor();
  forward_kernel(d, x, weight, bias, eps, y, mean, rstd);
  return {y, mean, rstd};
}

Tensor layer_norm(const Tensor& x, const optional_tensor& weight, const optional_tensor& bias,
                  double eps) {
  return std::get<0>(compute_forward(x, weight, bias, eps, /*statistics=*/false));
}

three_tensors layer_norm_forward(const Tensor& x, const optional_tensor& weight,
                                 const optional_tensor& bias, double eps) {
  return compute_forward(x, weight, bias, eps, /*statistics=*/true);
}

void check_backward(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                    const optional_tensor& bias, const Tensor& mean, const Tensor& rstd,
                    std::array<bool, 3> needs) {
  check(kBackwardTable, {dy, x, weight, bias, mean, rstd});
  TORCH_CHECK_VALUE(!needs[1] || weight,
                    "layer_norm_backward: weight must be given when its gradient is "
                    "needed, got None");
  TORCH_CHECK_VALUE(!needs[2] || bias,
                    "layer_norm_backward: bias must be given when its gradient is "
                    "needed, got None");
}

three_tensors layer_norm_backward(const Tensor& dy, const Tensor& x, const optional_tensor& weight,
                                  const optional_tensor& bias, const Tensor& mean,
                                  const Tensor& rstd, std::array<bool, 3> needs) {
  check_backward(dy, x, weight, bias, mean, rstd, needs);
  if (x.numel() == 0) {  // sums over no rows
    return {needs[0] ? empty_contiguous(x) : none(x),
            needs[1] ? empty_contiguous(*weight).zero_() : none(x),
            needs[2] ? empty_contiguous(*bias).zero_() : none(x)};
  }
  const decision d = decide(kBackwardKernel, x.device(), why_unsupported(x));
  if (d.explained) return {none(x), none(x), none(x)};
  return d.run == nullptr ? backward_aten(dy, x, weight, bias, mean, rstd, needs)
                          : backward_kernel(d, dy, x, weight, bias, mean, rstd, needs);
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

Tensor layer_norm_meta(const Tensor& x, const optional_tensor& weight, const optional_tensor& bias,
                       double eps) {
  check(kForwardTable, {x, weight, bias, eps});
  return empty_contiguous(x);
}

three_tensors layer_norm_forward_meta(const Tensor& x, const optional_tensor& weight,
                                      const optional_tensor& bias, double eps) {
  check(kForwardTable, {x, weight, bias, eps});
  return {empty_contiguous(x), empty_statistics(x), empty_statistics(x)};
}

three_tensors layer_norm_backward_meta(const Tensor& dy, const Tensor& x,
                                       const optional_tensor& weight, const optional_tensor& bias,
                                       const Tensor& mean, const Tensor& rstd,
                                       std::array<bool, 3> needs) {
  check_backward(dy, x, weight, bias, mean, rstd, needs);
  return {needs[0] ? empty_contiguous(x) : none(x), needs[1] ? empty_contiguous(*weight) : none(x),
          needs[2] ? empty_contiguous(*bias) : none(x)};
}

// ---- Autograd -----------------------------------------------------------------------------------

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns y, and with Statistics also mean and rstd, which carry no gradient. (Each output costs
// the caller half a microsecond.)
template <bool Statistics>
struct differentiable_layer_norm
    : torch::autograd::Function<differentiable_layer_norm<Statistics>> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const optional_tensor& weight,
                               const optional_tensor& bias, double eps) {
    static const auto op = find_op("thunderkittens::layer_norm_forward", layer_norm_forward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [y, mean, rstd] = op.call(x, weight, bias, eps);
    ctx->save_for_backward({x, weight.value_or(Tensor()), bias.value_or(Tensor()), mean, rstd});
    ctx->set_materialize_grads(false);
    save_backend(ctx);
    if constexpr (!Statistics) return {y};
    ctx->mark_non_differentiable({mean, rstd});
    return {y, mean, rstd};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    static const auto op = find_op("thunderkittens::layer_norm_backward", layer_norm_backward);
    const Tensor& dy = gradients[0];
    if (!dy.defined()) return {Tensor(), Tensor(), Tensor(), Tensor()};
    const auto given = [](const Tensor& t) {
      return t.defined() ? optional_tensor(t) : std::nullopt;
    };
    const variable_list saved = ctx->get_saved_variables();
    const optional_tensor weight = given(saved[1]), bias = given(saved[2]);
    // Edges exist for the tensors that were given, in their order.
    const std::array<bool, 3> needs = {ctx->needs_input_grad(0), weight && ctx->needs_input_grad(1),
                                       bias && ctx->needs_input_grad(weight ? 2 : 1)};
    const backend_scope scope(saved_backend(ctx));
    auto [dx, dweight, dbias] = op.call(dy, saved[0], weight, bias, saved[3], saved[4], needs);
    return {needs[0] ? dx : Tensor(), needs[1] ? dweight : Tensor(), needs[2] ? dbias : Tensor(),
            Tensor()};
  }
};

Tensor layer_norm_autograd(c10::DispatchKeySet keys, const Tensor& x, const optional_tensor& weight,
                           const optional_tensor& bias, double eps) {
  check_dense(kForwardTable, {x, weight, bias, eps});
  refuse_forward_mode("layer_norm", x, weight, bias);
  if (records_gradient(x, weight, bias)) {
    return differentiable_layer_norm<false>::apply(x, weight, bias, eps)[0];
  }
  static const auto op = find_op("thunderkittens::layer_norm", layer_norm);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.redispatch(keys & c10::after_autograd_keyset, x, weight, bias, eps);
}

three_tensors layer_norm_forward_autograd(const Tensor& x, const optional_tensor& weight,
                                          const optional_tensor& bias, double eps) {
  check_dense(kForwardTable, {x, weight, bias, eps});
  refuse_forward_mode("layer_norm", x, weight, bias);
  const variable_list outputs = differentiable_layer_norm<true>::apply(x, weight, bias, eps);
  return {outputs[0], outputs[1], outputs[2]};
}

three_tensors layer_norm_backward_autograd(c10::DispatchKeySet keys, const Tensor& dy,
                                           const Tensor& x, const optional_tensor& weight,
                                           const optional_tensor& bias, const Tensor& mean,
                                           const Tensor& rstd, std::array<bool, 3> needs) {
  check_dense(kBackwardTable, {dy, x, weight, bias, mean, rstd});
  static const auto op = find_op("thunderkittens::layer_norm_backward", layer_norm_backward);
  return once_differentiable("layer_norm", op, keys, records_gradient(dy, x, weight), dy, x, weight,
                             bias, mean, rstd, needs);
}

// ---- Registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  m.def("layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor",
        {at::Tag::pt2_compliant_tag});
  m.def(
      "layer_norm_forward(Tensor x, Tensor? weight, Tensor? bias, float eps) "
      "-> (Tensor y, Tensor mean, Tensor rstd)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "layer_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor "
      "rstd, bool[3] needs) -> (Tensor dx, Tensor dweight, Tensor dbias)",
      {at::Tag::pt2_compliant_tag});
}

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("layer_norm", layer_norm);
  m.impl("layer_norm_forward", layer_norm_forward);
  m.impl("layer_norm_backward", layer_norm_backward);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("layer_norm", layer_norm_meta);
  m.impl("layer_norm_forward", layer_norm_forward_meta);
  m.impl("layer_norm_backward", layer_norm_backward_meta);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("layer_norm", layer_norm_autograd);
  m.impl("layer_norm_forward", layer_norm_forward_autograd);
  m.impl("layer_norm_backward", layer_norm_backward_autograd);
}

}  // namespace
}  // namespace thunderkittens
