// linear_cross_entropy towards torch: schemas, fakes, autograd, autocast.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "binding/by_hand.h"
#include "binding/by_hand.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"
#include "kernels/cross_entropy/torch/linear_cross_entropy.hpp"

namespace thunderkittens {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- The functions that torch registers ---------------------------------------------------------

Tensor linear_op(const Tensor& x, const Tensor& weight, const Tensor& targets,
                 const optional_tensor& bias, int64_t ignore_index, std::string_view reduction,
                 double label_smoothing, double z_loss) {
  return linear_cross_entropy(
      {x, weight, targets, bias, ignore_index, reduction, label_smoothing, z_loss, {}});
}

four_tensors linear_forward_op(const Tensor& x, const Tensor& weight, const Tensor& targets,
                               const optional_tensor& bias, std::array<bool, 3> needs,
                               int64_t ignore_index, std::string_view reduction,
                               double label_smoothing, double z_loss,
                               std::optional<int64_t> chunk_rows) {
  TORCH_CHECK_VALUE(!chunk_rows || *chunk_rows >= 1,
                    "linear_cross_entropy_forward: chunk_rows must be >= 1, got ", *chunk_rows);
  return linear_cross_entropy_forward(
      {x, weight, targets, bias, ignore_index, reduction, label_smoothing, z_loss, chunk_rows},
      needs);
}

three_tensors linear_backward_op(const Tensor& x, const Tensor& dloss, const Tensor& loss,
                                 const Tensor& weight, const Tensor& targets,
                                 const optional_tensor& bias, std::array<bool, 3> needs,
                                 int64_t ignore_index, double label_smoothing, double z_loss) {
  return linear_cross_entropy_backward(
      {x, weight, targets, bias, ignore_index, "none", label_smoothing, z_loss, {}}, dloss, loss,
      needs);
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

Tensor forward_meta(const Tensor& x, const Tensor& weight, const Tensor& targets,
                    const optional_tensor& bias, int64_t ignore_index, std::string_view reduction,
                    double label_smoothing, double z_loss) {
  check_linear({x, weight, targets, bias, ignore_index, reduction, label_smoothing, z_loss, {}});
  return reduction == "none" ? empty_losses(x) : at::empty({}, x.options().dtype(loss_dtype(x)));
}

three_tensors empty_gradients(const Tensor& x, const Tensor& weight, const optional_tensor& bias,
                              std::array<bool, 3> needs) {
  const auto gradient = [&](bool needed, const optional_tensor& like) {
    return needed ? empty_contiguous(*like) : at::empty({0}, x.options());
  };
  return {gradient(needs[0], x), gradient(needs[1], weight), gradient(needs[2], bias)};
}

four_tensors forward_with_gradients_meta(const Tensor& x, const Tensor& weight,
                                         const Tensor& targets, const optional_tensor& bias,
                                         std::array<bool, 3> needs, int64_t ignore_index,
                                         std::string_view reduction, double label_smoothing,
                                         double z_loss, std::optional<int64_t>) {
  const Tensor loss =
      forward_meta(x, weight, targets, bias, ignore_index, reduction, label_smoothing, z_loss);
  return std::tuple_cat(std::tuple(loss), empty_gradients(x, weight, bias, needs));
}

three_tensors backward_meta(const Tensor& x, const Tensor& dloss, const Tensor& loss,
                            const Tensor& weight, const Tensor& targets,
                            const optional_tensor& bias, std::array<bool, 3> needs,
                            int64_t ignore_index, double label_smoothing, double z_loss) {
  check_linear_backward(
      {x, weight, targets, bias, ignore_index, "none", label_smoothing, z_loss, {}}, dloss, loss);
  return empty_gradients(x, weight, bias, needs);
}

// ---- Autograd -----------------------------------------------------------------------------------

// With Reduced, the forward computes the gradients and saves them; else the backward does.
template <bool Reduced>
struct differentiable : torch::autograd::Function<differentiable<Reduced>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& targets, const optional_tensor& bias, int64_t ignore_index,
                        std::string_view reduction, double label_smoothing, double z_loss) {
    ctx->set_materialize_grads(false);
    save_backend(ctx);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if constexpr (Reduced) {
      static const auto op =
          find_op("thunderkittens::linear_cross_entropy_forward", linear_forward_op);
      const std::array<bool, 3> needs = {x.requires_grad(), weight.requires_grad(),
                                         bias && bias->requires_grad()};
      auto [loss, dx, dweight, dbias] = op.call(x, weight, targets, bias, needs, ignore_index,
                                                reduction, label_smoothing, z_loss, std::nullopt);
      const auto wanted = [&](int i, const Tensor& t) { return needs[i] ? t : Tensor(); };
      ctx->save_for_backward({loss, wanted(0, dx), wanted(1, dweight), wanted(2, dbias)});
      return loss;
    } else {
      static const auto op = find_op("thunderkittens::linear_cross_entropy", linear_op);
      const Tensor loss =
          op.call(x, weight, targets, bias, ignore_index, reduction, label_smoothing, z_loss);
      ctx->save_for_backward({loss, x, weight, targets, bias.value_or(Tensor())});
      ctx->saved_data["ignore_index"] = ignore_index;
      ctx->saved_data["label_smoothing"] = label_smoothing;
      ctx->saved_data["z_loss"] = z_loss;
      return loss;
    }
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list results(8);
    const Tensor& dloss = gradients[0];
    if (!dloss.defined()) return results;
    const variable_list saved = ctx->get_saved_variables();
    const backend_scope scope(saved_backend(ctx));
    if constexpr (Reduced) {
      const auto scaled = [&](const Tensor& gradient) {
        return gradient.defined() ? scale_gradient(gradient, dloss, saved[0]) : Tensor();
      };
      results[0] = scaled(saved[1]);
      results[1] = scaled(saved[2]);
      results[3] = scaled(saved[3]);
    } else {
      static const auto op =
          find_op("thunderkittens::linear_cross_entropy_backward", linear_backward_op);
      const optional_tensor bias = saved[4].defined() ? optional_tensor(saved[4]) : std::nullopt;
      // Edges exist for the tensors that were given, in their order.
      const std::array<bool, 3> needs = {ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                         bias && ctx->needs_input_grad(3)};
      auto& data = ctx->saved_data;
      auto [dx, dweight, dbias] = op.call(
          saved[1], dloss, saved[0], saved[2], saved[3], bias, needs, data["ignore_index"].toInt(),
          data["label_smoothing"].toDouble(), data["z_loss"].toDouble());
      if (needs[0]) results[0] = dx;
      if (needs[1]) results[1] = dweight;
      if (needs[2]) results[3] = dbias;
    }
    return results;
  }
};

Tensor forward_autograd(c10::DispatchKeySet keys, const Tensor& x, const Tensor& weight,
                        const Tensor& targets, const optional_tensor& bias, int64_t ignore_index,
                        std::string_view reduction, double label_smoothing, double z_loss) {
  check_dense_linear(
      {x, weight, targets, bias, ignore_index, reduction, label_smoothing, z_loss, {}});
  refuse_forward_mode("linear_cross_entropy", x, weight, bias);
  if (records_gradient(x, weight, bias)) {
    const auto record = [&]<bool Reduced>(std::bool_constant<Reduced>) {
      return differentiable<Reduced>::apply(x, weight, targets, bias, ignore_index, reduction,
                                            label_smoothing, z_loss);
    };
    return reduction == "none" ? record(std::false_type{}) : record(std::true_type{});
  }
  static const auto op = find_op("thunderkittens::linear_cross_entropy", linear_op);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.redispatch(keys & c10::after_autograd_keyset, x, weight, targets, bias, ignore_index,
                       reduction, label_smoothing, z_loss);
}

three_tensors backward_autograd(c10::DispatchKeySet keys, const Tensor& x, const Tensor& dloss,
                                const Tensor& loss, const Tensor& weight, const Tensor& targets,
                                const optional_tensor& bias, std::array<bool, 3> needs,
                                int64_t ignore_index, double label_smoothing, double z_loss) {
  check_dense_linear_backward(
      {x, weight, targets, bias, ignore_index, "none", label_smoothing, z_loss, {}}, dloss, loss);
  static const auto op =
      find_op("thunderkittens::linear_cross_entropy_backward", linear_backward_op);
  return once_differentiable("linear_cross_entropy", op, keys,
                             records_gradient(x, dloss, loss, weight, bias), x, dloss, loss, weight,
                             targets, bias, needs, ignore_index, label_smoothing, z_loss);
}

// ---- Autocast -----------------------------------------------------------------------------------

// x, weight and bias take autocast's dtype, as torch.linear's would.
template <c10::DeviceType Device>
Tensor forward_autocast(const Tensor& x, const Tensor& weight, const Tensor& targets,
                        const optional_tensor& bias, int64_t ignore_index,
                        std::string_view reduction, double label_smoothing, double z_loss) {
  static const auto op = find_op("thunderkittens::linear_cross_entropy", linear_op);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(Device)));
  const at::ScalarType type = at::autocast::get_autocast_dtype(Device);
  return op.call(at::autocast::cached_cast(type, x, Device),
                 at::autocast::cached_cast(type, weight, Device), targets,
                 at::autocast::cached_cast(type, bias, Device), ignore_index, reduction,
                 label_smoothing, z_loss);
}

// ---- Registration -------------------------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  m.def(
      "linear_cross_entropy(Tensor x, Tensor weight, Tensor targets, Tensor? bias=None, "
      "int ignore_index=-100, str reduction=\"mean\", float label_smoothing=0.0, "
      "float z_loss=0.0) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "linear_cross_entropy_forward(Tensor x, Tensor weight, Tensor targets, Tensor? bias, "
      "bool[3] needs, int ignore_index=-100, str reduction=\"mean\", "
      "float label_smoothing=0.0, float z_loss=0.0, int? chunk_rows=None) "
      "-> (Tensor loss, Tensor dx, Tensor dweight, Tensor dbias)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "linear_cross_entropy_backward(Tensor x, Tensor dloss, Tensor loss, Tensor weight, "
      "Tensor targets, Tensor? bias, bool[3] needs, *, int ignore_index=-100, "
      "float label_smoothing=0.0, float z_loss=0.0) "
      "-> (Tensor dx, Tensor dweight, Tensor dbias)",
      {at::Tag::pt2_compliant_tag});
}

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("linear_cross_entropy", linear_op);
  m.impl("linear_cross_entropy_forward", linear_forward_op);
  m.impl("linear_cross_entropy_backward", linear_backward_op);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("linear_cross_entropy", forward_meta);
  m.impl("linear_cross_entropy_forward", forward_with_gradients_meta);
  m.impl("linear_cross_entropy_backward", backward_meta);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("linear_cross_entropy", forward_autograd);
  m.impl("linear_cross_entropy_backward", backward_autograd);
}

TORCH_LIBRARY_IMPL(thunderkittens, AutocastCPU, m) {
  m.impl("linear_cross_entropy", forward_autocast<at::kCPU>);
}

TORCH_LIBRARY_IMPL(thunderkittens, AutocastCUDA, m) {
  m.impl("linear_cross_entropy", forward_autocast<at::kCUDA>);
}

}  // namespace
}  // namespace thunderkittens
