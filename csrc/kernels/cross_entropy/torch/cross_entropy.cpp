// cross_entropy as torch ops.
//
//   lse = log Σ_j exp(x_j),   loss = lse − (1 − ε) x_t − (ε / V) Σ_j x_j + z · lse²,   per row
//
// `cross_entropy` and `cross_entropy_`, which may write over the logits, are public. A call that
// records a gradient computes it at once, as if the gradient of the loss were 1
// (`cross_entropy_forward`), and saves it in place of the logits, or in their memory
// (`cross_entropy_forward_`). Its backward multiplies it by what the loss's gradient is. No
// autocast rule: whatever the dtype of the logits, a loss is computed in float32.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/graph_task.h>

#include "binding/launch.h"
#include "binding/op.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"

namespace thunderkittens {
namespace {

const kernel kCrossEntropyForwardKernel("cross_entropy", kCrossEntropyForward);
const kernel kCrossEntropyBackwardKernel("cross_entropy_backward", kCrossEntropyBackward);

// Raises unless each row of the logits can be written without touching another.
void check_writable_rows(const Tensor& logits) {
  if (logits.numel() == 0) return;
  const std::optional<int64_t> stride = row_stride(logits);
  const bool apart = stride && (*stride >= logits.size(-1) || logits.numel() == logits.size(-1));
  TORCH_CHECK_VALUE(apart,
                    "cross_entropy: logits must be contiguous rows one distance apart, to be "
                    "written in place, got strides ",
                    logits.strides());
}

// ---- Forward ------------------------------------------------------------------------------------

enum class wanted { loss, gradient, gradient_in_place };

// The loss, and the gradient of the logits if it is wanted, in memory of its own.
tensor_array<2> compute_forward(const Tensor& logits, const Tensor& targets, const loss_options& o,
                                wanted what) {
  const auto check_columns = [&] {
    check_targets("cross_entropy", o, targets, logits.size(-1), "logits.size(-1)");
  };
  const auto gradient = [&] {
    return what == wanted::gradient_in_place ? logits
           : what == wanted::gradient        ? empty_contiguous(logits)
                                             : Tensor();
  };
  if (logits.numel() == 0 && explaining() == nullptr) {  // no rows, or rows without columns
    check_columns();
    Tensor loss = at::zeros(targets.sizes(), logits.options().dtype(statistics_dtype(logits)));
    loss.masked_fill_(targets.ne(o.ignore_index), std::numeric_limits<double>::quiet_NaN());
    return {reduce_losses({}, o, loss, targets), gradient()};
  }
  const decision d = decide_loss(kCrossEntropyForwardKernel, logits, logits.size(-1));
  if (d.explained) {
    if (d.on != nullptr) note_copy(logits, "logits");
    return {};
  }
  if (d.on == nullptr) check_columns();
  loss_rows rows{.logits = logits, .targets = targets.contiguous(), .gradient = gradient()};
  const bool reduced = d.on != nullptr && o.reduce != loss_reduction::none;
  Tensor& loss = reduced ? rows.total : rows.loss;
  loss = empty_statistics(logits, /*by_row=*/!reduced);
  if (!reduced && rows.gradient.defined() && o.reduce == loss_reduction::mean) {
    rows.counts = count_targets(d, o, rows.targets);
  }
  compute_rows(d, o, rows);
  if (!reduced) loss = reduce_losses(d, o, loss, rows.targets, rows.counts);
  return {loss, rows.gradient};
}

// ---- Backward -----------------------------------------------------------------------------------

// `result`: contiguous, or `gradient` itself.
void compute_backward(const Tensor& gradient, const Tensor& dloss, const Tensor& result) {
  if (gradient.numel() == 0) return;
  const int64_t width = gradient.size(-1);
  const decision d = decide_loss(kCrossEntropyBackwardKernel, gradient, width);
  if (d.explained) return;
  if (d.on == nullptr) {  // what is 0 stays 0, as the gradient of ignored rows is
    Tensor scaled = gradient.to(statistics_dtype(gradient)).mul(dloss.unsqueeze(-1));
    result.copy_(scaled.masked_fill_(gradient.eq(0), 0));
    return;
  }
  const rows_view rows = as_rows(gradient), factors = as_rows(dloss.unsqueeze(-1));
  launch(d,
         cross_entropy_backward_problem{
             .rows = gradient.numel() / width,
             .width = width,
             .stride = rows.stride,
             .dloss_stride = factors.stride,
             .result_stride = *row_stride(result),
             .type = *kernel_dtype(gradient.scalar_type()),
         },
         cross_entropy_backward_tensors{
             .gradient = input(rows.tensor),
             .dloss = input<float>(factors.tensor),
             .result = output(result),
         });
}

struct cross_entropy_backward : gradients_of<"cross_entropy"> {
  static constexpr argument_list arguments{
      tensor("gradient", dtype_rule::floating, "*,V"),
      tensor("dloss", dtype_rule::statistics, "*"),
      tensor("loss", dtype_rule::statistics, "*"),
  };
  static constexpr result_list results{like("dlogits", "gradient")};

  static tensor_array<1> compute(const Tensor& gradient, const Tensor& dloss, const Tensor&) {
    const Tensor result = empty_contiguous(gradient);
    compute_backward(gradient, dloss, result);
    return {result};
  }
};

struct cross_entropy_backward_in_place {
  static constexpr const char* name = "cross_entropy_backward_";
  static constexpr argument_list arguments{
      tensor("gradient", dtype_rule::floating, "*,V"),
      tensor("dloss", dtype_rule::statistics, "*"),
  };
  static constexpr result_list results{};
  static constexpr size_t kWritten = 1;

  static void compute(const Tensor& gradient, const Tensor& dloss) {
    check_writable_rows(gradient);
    compute_backward(gradient, dloss, gradient);
  }
};

// ---- The public ops -----------------------------------------------------------------------------

// What they have in common.
struct cross_entropy_of_logits {
  static constexpr const char* called = "cross_entropy";
  static constexpr auto arguments =
      argument_list{
          tensor("logits", dtype_rule::floating, "*,V"),
          tensor("targets", dtype_rule::index, "*"),
      } +
      kLossOptions;
};

struct cross_entropy : cross_entropy_of_logits {
  using backward = cross_entropy_backward;
  static constexpr const char* name = "cross_entropy";
  static constexpr result_list results{loss("loss"), like("gradient", "logits")};
  static constexpr size_t kReturned = 1, kPlain = 2;

  static tensor_array<2> compute(bool gradient, const Tensor& logits, const Tensor& targets,
                                 const auto&... of_loss) {
    return compute_forward(logits, targets, {of_loss...},
                           gradient ? wanted::gradient : wanted::loss);
  }
  static tensor_array<1> differentiate(const auto&, const Tensor& gradient, const Tensor& dloss,
                                       const Tensor& loss) {
    return {scale_gradient(gradient, dloss, loss)};
  }
};

// The loss, while the gradient is left in place of the logits.
struct cross_entropy_forward_in_place : cross_entropy_of_logits {
  static constexpr const char* name = "cross_entropy_forward_";
  static constexpr result_list results{loss("loss")};
  static constexpr size_t kWritten = 1;

  static tensor_array<1> compute(const Tensor& logits, const Tensor& targets,
                                 const auto&... of_loss) {
    check_writable_rows(logits);
    return {compute_forward(logits, targets, {of_loss...}, wanted::gradient_in_place)[0]};
  }
};

struct cross_entropy_in_place : cross_entropy_of_logits {
  static constexpr const char* name = "cross_entropy_";
  static constexpr result_list results{loss("loss")};
  static constexpr size_t kWritten = 1;
  static constexpr bool kRecords = true;

  // Without a gradient to record there is nothing to write.
  static tensor_array<1> compute(const Tensor& logits, const Tensor& targets,
                                 const auto&... of_loss) {
    return {compute_forward(logits, targets, {of_loss...}, wanted::loss)[0]};
  }

  static tensor_array<1> record(const call_to_record& call, const Tensor& logits,
                                const auto&... others) {
    const at::TensorBase& owner = logits.is_view() ? logits._base() : logits;
    TORCH_CHECK_VALUE(!(owner.is_leaf() && owner.requires_grad()),
                      "cross_entropy: logits must be computed to be written in place, got a leaf "
                      "that requires grad");
    const auto node = make_node(backward_by_name<cross_entropy>(), logits);
    const at::AutoGradMode nothing_inside(false);
    // Shares the version of the logits, so that autograd notices who writes over it.
    const Tensor gradient = logits.detach();
    tensor_array<1> results = functions<cross_entropy_forward_in_place, true>::below_autograd(
        call.plain, gradient, others...);
    torch::autograd::impl::bump_version(logits);
    torch::autograd::set_history(results[0], node);
    node->save(gradient);
    node->save(results[0], /*is_output=*/true);
    return results;
  }
};

const register_ops<cross_entropy, cross_entropy_in_place, cross_entropy_forward_in_place,
                   cross_entropy_backward, cross_entropy_backward_in_place>
    registered_cross_entropy;

}  // namespace

Tensor scale_gradient(const Tensor& gradient, const Tensor& dloss, const Tensor& loss) {
  const c10::SymIntArrayRef rows = gradient.sym_sizes().slice(0, gradient.dim() - 1);
  const Tensor factors = dloss.expand_symint(rows);
  // What a tracer, a transform or a subclass of tensors stands for may be needed again.
  const bool last = !torch::autograd::get_current_graph_task_keep_graph() &&
                    !at::GradMode::is_enabled() && is_plain(keys_of(gradient, factors));
  if (!last) {
    return call_from_backward<cross_entropy_backward>(gradient, factors,
                                                      loss.expand_symint(rows))[0];
  }
  call_from_backward<cross_entropy_backward_in_place>(gradient, factors);
  return gradient;
}

}  // namespace thunderkittens
