// cross_entropy above its backends: autograd.
//
// A call that records a gradient computes it at once, as if the gradient of the loss were 1, and
// saves it in place of the logits. Its backward multiplies: where the graph is not kept, in the
// same memory, which nothing touches if the factor is 1; where it is kept, in memory of its own, so
// that the next backward finds what this one found.
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

#include "binding/by_hand.h"
#include "binding/by_hand.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"
#include "kernels/cross_entropy/torch/cross_entropy_ops.hpp"

namespace thunderkittens {

using at::Tensor;

Tensor scale_gradient(const Tensor& gradient, const Tensor& dloss, const Tensor& loss) {
  static const auto apart =
      find_op("thunderkittens::cross_entropy_backward", cross_entropy_backward);
  static const auto in_place =
      find_op("thunderkittens::cross_entropy_backward_", cross_entropy_backward_);
  const c10::SymIntArrayRef rows = leading_sizes(gradient);
  const Tensor factors = dloss.expand_symint(rows);
  // What a tracer or another subclass of tensors stands for may be needed again.
  const bool last = !torch::autograd::get_current_graph_task_keep_graph() &&
                    !at::GradMode::is_enabled() &&
                    !gradient.unsafeGetTensorImpl()->is_python_dispatch();
  if (!last) return apart.call(gradient, factors, loss.expand_symint(rows));
  Tensor result = gradient;
  in_place.call(result, factors);
  return result;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <bool InPlace>
struct differentiable_cross_entropy
    : torch::autograd::Function<differentiable_cross_entropy<InPlace>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Tensor& targets,
                        int64_t ignore_index, std::string_view reduction, double label_smoothing,
                        double z_loss) {
    static const auto apart =
        find_op("thunderkittens::cross_entropy_forward", cross_entropy_forward);
    static const auto in_place =
        find_op("thunderkittens::cross_entropy_forward_", cross_entropy_forward_);
    // Shares the version of the logits, so that autograd notices who writes over it.
    Tensor gradient = InPlace ? logits.detach() : Tensor(), loss;
    {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      if constexpr (InPlace) {
        loss = in_place.call(gradient, targets, ignore_index, reduction, label_smoothing, z_loss);
      } else {
        std::tie(loss, gradient) =
            apart.call(logits, targets, ignore_index, reduction, label_smoothing, z_loss);
      }
    }
    if constexpr (InPlace) torch::autograd::impl::bump_version(logits);
    ctx->save_for_backward({gradient, loss});
    ctx->set_materialize_grads(false);
    save_backend(ctx);
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    variable_list results(6);
    if (!gradients[0].defined()) return results;
    const variable_list saved = ctx->get_saved_variables();
    const backend_scope scope(saved_backend(ctx));
    results[0] = scale_gradient(saved[0], gradients[0], saved[1]);
    return results;
  }
};

void check_differentiable(const Tensor& logits, const Tensor& targets) {
  check_dense_logits(logits, targets);
  refuse_forward_mode("cross_entropy", logits);
}

Tensor cross_entropy_plain(const Tensor& logits, const Tensor& targets) {
  static const auto op = find_op("thunderkittens::cross_entropy", cross_entropy);
  return op.call(logits, targets, /*ignore_index=*/-100, "mean", /*label_smoothing=*/0.0,
                 /*z_loss=*/0.0);
}

Tensor cross_entropy_autograd(c10::DispatchKeySet keys, const Tensor& logits, const Tensor& targets,
                              int64_t ignore_index, std::string_view reduction,
                              double label_smoothing, double z_loss) {
  check_differentiable(logits, targets);
  if (records_gradient(logits)) {
    return differentiable_cross_entropy<false>::apply(logits, targets, ignore_index, reduction,
                                                      label_smoothing, z_loss);
  }
  static const auto op = find_op("thunderkittens::cross_entropy", cross_entropy);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.redispatch(keys & c10::after_autograd_keyset, logits, targets, ignore_index, reduction,
                       label_smoothing, z_loss);
}

Tensor cross_entropy_autograd_(c10::DispatchKeySet keys, Tensor& logits, const Tensor& targets,
                               int64_t ignore_index, std::string_view reduction,
                               double label_smoothing, double z_loss) {
  check_differentiable(logits, targets);
  if (records_gradient(logits)) {
    const at::TensorBase& owner = logits.is_view() ? logits._base() : logits;
    TORCH_CHECK_VALUE(!(owner.is_leaf() && owner.requires_grad()),
                      "cross_entropy: logits must be computed to be written in place, got a leaf "
                      "that requires grad");
    return differentiable_cross_entropy<true>::apply(logits, targets, ignore_index, reduction,
                                                     label_smoothing, z_loss);
  }
  static const auto op = find_op("thunderkittens::cross_entropy_", cross_entropy_);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.redispatch(keys & c10::after_autograd_keyset, logits, targets, ignore_index, reduction,
                       label_smoothing, z_loss);
}

Tensor cross_entropy_backward_autograd(c10::DispatchKeySet keys, const Tensor& gradient,
                                       const Tensor& dloss, const Tensor& loss) {
  check_dense_gradient(gradient, dloss, loss);
  static const auto op = find_op("thunderkittens::cross_entropy_backward", cross_entropy_backward);
  return once_differentiable("cross_entropy", op, keys, records_gradient(gradient, dloss, loss),
                             gradient, dloss, loss);
}

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  define_short_form(m, "cross_entropy.plain", "(Tensor logits, Tensor targets) -> Tensor",
                    cross_entropy_plain);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("cross_entropy", cross_entropy_autograd);
  m.impl("cross_entropy_", cross_entropy_autograd_);
  m.impl("cross_entropy_backward", cross_entropy_backward_autograd);
}

}  // namespace
}  // namespace thunderkittens
