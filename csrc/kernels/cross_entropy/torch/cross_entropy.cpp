// cross_entropy as torch ops: schemas, checks, outputs, backends, fakes.
//
//   lse = log Σ_j exp(x_j),   loss = lse − (1 − ε) x_t − (ε / V) Σ_j x_j + z · lse²,   per row
//
// `cross_entropy` and `cross_entropy_`, which may write over the logits, are public.
// `cross_entropy_forward` also gives the gradient of the logits as if that of the loss were 1, and
// `cross_entropy_forward_` leaves it in their place; `cross_entropy_backward` multiplies it by what
// the loss's gradient is, `cross_entropy_backward_` in place. No autocast rule: whatever the dtype
// of the logits, a loss is computed in float32. Autograd stands in cross_entropy_autograd.cpp.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/launch.h"
#include "binding/layout.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"
#include "kernels/cross_entropy/torch/cross_entropy_ops.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;
using two_tensors = std::tuple<Tensor, Tensor>;

constexpr arguments kForwardArguments({
    tensor("logits", dtype_rule::floating, "*,V"),
    tensor("targets", dtype_rule::index, "*"),
    number("label_smoothing", 0.0),
    number("z_loss", 0.0),
});
constexpr arguments kBackwardArguments({
    tensor("gradient", dtype_rule::floating, "*,V"),
    tensor("dloss", dtype_rule::statistics, "*"),
    tensor("loss", dtype_rule::statistics, "*"),
});
constexpr arguments kInPlaceArguments({
    tensor("gradient", dtype_rule::floating, "*,V"),
    tensor("dloss", dtype_rule::statistics, "*"),
});
constexpr argument_table kForwardTable = kForwardArguments.table("cross_entropy");
constexpr argument_table kBackwardTable = kBackwardArguments.table("cross_entropy_backward");
constexpr argument_table kInPlaceTable = kInPlaceArguments.table("cross_entropy_backward_");
const enter_arguments enter_forward(kForwardTable), enter_backward(kBackwardTable),
    enter_in_place(kInPlaceTable);

const kernel kForwardKernel("cross_entropy", kCrossEntropyForward);
const kernel kBackwardKernel("cross_entropy_backward", kCrossEntropyBackward);

loss_options checked(const Tensor& logits, const Tensor& targets, int64_t ignore_index,
                     std::string_view reduction, double label_smoothing, double z_loss) {
  check(kForwardTable, {logits, targets, label_smoothing, z_loss});
  return {"cross_entropy", ignore_index, reduction, label_smoothing, z_loss};
}

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
two_tensors compute_forward(const Tensor& logits, const Tensor& targets, const loss_options& o,
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
    Tensor loss = at::zeros(targets.sizes(), logits.options().dtype(loss_dtype(logits)));
    loss.masked_fill_(targets.ne(o.ignore_index), std::numeric_limits<double>::quiet_NaN());
    return {reduce_losses({}, o, loss, targets), gradient()};
  }
  const decision d = decide(kForwardKernel, logits.device(),
                            why_no_cross_entropy_kernel(logits.scalar_type(), logits.size(-1)));
  if (d.explained) {
    if (d.on != nullptr) note_copy(logits, "logits");
    return {at::empty({0}, logits.options()), Tensor()};
  }
  if (d.on == nullptr) check_columns();
  raise_target_outside(d, logits.device());
  loss_rows rows{.logits = logits, .targets = targets.contiguous(), .gradient = gradient()};
  if (d.on != nullptr && o.reduce != loss_reduction::none) {
    rows.total = at::empty({}, logits.options().dtype(loss_dtype(logits)));
    compute_rows(d, o, rows);
    return {rows.total, rows.gradient};
  }
  rows.loss = empty_losses(logits);
  if (rows.gradient.defined() && o.reduce == loss_reduction::mean) {
    rows.counts = count_targets(d, o, rows.targets);
  }
  compute_rows(d, o, rows);
  return {reduce_losses(d, o, rows.loss, rows.targets, rows.counts), rows.gradient};
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int64_t ignore_index,
                     std::string_view reduction, double label_smoothing, double z_loss) {
  const auto options = checked(logits, targets, ignore_index, reduction, label_smoothing, z_loss);
  return std::get<0>(compute_forward(logits, targets, options, wanted::loss));
}

// Without a gradient to record there is nothing to write.
Tensor cross_entropy_(Tensor& logits, const Tensor& targets, int64_t ignore_index,
                      std::string_view reduction, double label_smoothing, double z_loss) {
  return cross_entropy(logits, targets, ignore_index, reduction, label_smoothing, z_loss);
}

two_tensors cross_entropy_forward(const Tensor& logits, const Tensor& targets, int64_t ignore_index,
                                  std::string_view reduction, double label_smoothing,
                                  double z_loss) {
  const auto options = checked(logits, targets, ignore_index, reduction, label_smoothing, z_loss);
  return compute_forward(logits, targets, options, wanted::gradient);
}

Tensor cross_entropy_forward_(Tensor& logits, const Tensor& targets, int64_t ignore_index,
                              std::string_view reduction, double label_smoothing, double z_loss) {
  const auto options = checked(logits, targets, ignore_index, reduction, label_smoothing, z_loss);
  check_writable_rows(logits);
  return std::get<0>(compute_forward(logits, targets, options, wanted::gradient_in_place));
}

// ---- Backward -----------------------------------------------------------------------------------

namespace {

// `result`: contiguous, or `gradient` itself.
void compute_backward(const Tensor& gradient, const Tensor& dloss, const Tensor& result) {
  if (gradient.numel() == 0) return;
  const int64_t width = gradient.size(-1);
  const decision d = decide(kBackwardKernel, gradient.device(),
                            why_no_cross_entropy_kernel(gradient.scalar_type(), width));
  if (d.explained) return;
  raise_target_outside(d, gradient.device());
  if (d.on == nullptr) {  // what is 0 stays 0, as the gradient of ignored rows is
    Tensor scaled = gradient.to(loss_dtype(gradient)).mul(dloss.unsqueeze(-1));
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
             .gradient = rows.tensor.const_data_ptr(),
             .dloss = factors.tensor.const_data_ptr<float>(),
             .result = result.mutable_data_ptr(),
         },
         gradient.device());
}

}  // namespace

Tensor cross_entropy_backward(const Tensor& gradient, const Tensor& dloss, const Tensor& loss) {
  check(kBackwardTable, {gradient, dloss, loss});
  const Tensor result = empty_contiguous(gradient);
  compute_backward(gradient, dloss, result);
  return result;
}

void cross_entropy_backward_(Tensor& gradient, const Tensor& dloss) {
  check(kInPlaceTable, {gradient, dloss});
  check_writable_rows(gradient);
  compute_backward(gradient, dloss, gradient);
}

// ---- Meta: shapes, dtypes and strides, also of symbolic sizes -----------------------------------

namespace {

Tensor cross_entropy_meta(const Tensor& logits, const Tensor& targets, int64_t ignore_index,
                          std::string_view reduction, double label_smoothing, double z_loss) {
  const auto options = checked(logits, targets, ignore_index, reduction, label_smoothing, z_loss);
  return options.reduce == loss_reduction::none
             ? empty_losses(logits)
             : at::empty({}, logits.options().dtype(loss_dtype(logits)));
}

Tensor cross_entropy_meta_(Tensor& logits, const Tensor& targets, int64_t ignore_index,
                           std::string_view reduction, double label_smoothing, double z_loss) {
  return cross_entropy_meta(logits, targets, ignore_index, reduction, label_smoothing, z_loss);
}

two_tensors cross_entropy_forward_meta(const Tensor& logits, const Tensor& targets,
                                       int64_t ignore_index, std::string_view reduction,
                                       double label_smoothing, double z_loss) {
  return {cross_entropy_meta(logits, targets, ignore_index, reduction, label_smoothing, z_loss),
          empty_contiguous(logits)};
}

Tensor cross_entropy_backward_meta(const Tensor& gradient, const Tensor& dloss,
                                   const Tensor& loss) {
  check(kBackwardTable, {gradient, dloss, loss});
  return empty_contiguous(gradient);
}

void cross_entropy_backward_meta_(Tensor& gradient, const Tensor& dloss) {
  check(kInPlaceTable, {gradient, dloss});
}

// ---- Registration -------------------------------------------------------------------------------

constexpr const char* kOptions =
    "int ignore_index=-100, str reduction=\"mean\", float label_smoothing=0.0, float z_loss=0.0)";

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  const auto define = [&](const std::string& schema) {
    m.def(torch::schema(schema.c_str()), {at::Tag::pt2_compliant_tag});
  };
  const std::string options = kOptions;
  define("cross_entropy(Tensor logits, Tensor targets, " + options + " -> Tensor");
  define("cross_entropy_(Tensor(a!) logits, Tensor targets, " + options + " -> Tensor");
  define("cross_entropy_forward(Tensor logits, Tensor targets, " + options +
         " -> (Tensor loss, Tensor gradient)");
  define("cross_entropy_forward_(Tensor(a!) logits, Tensor targets, " + options + " -> Tensor");
  define("cross_entropy_backward(Tensor gradient, Tensor dloss, Tensor loss) -> Tensor");
  define("cross_entropy_backward_(Tensor(a!) gradient, Tensor dloss) -> ()");
}

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("cross_entropy", cross_entropy);
  m.impl("cross_entropy_", cross_entropy_);
  m.impl("cross_entropy_forward", cross_entropy_forward);
  m.impl("cross_entropy_forward_", cross_entropy_forward_);
  m.impl("cross_entropy_backward", cross_entropy_backward);
  m.impl("cross_entropy_backward_", cross_entropy_backward_);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("cross_entropy", cross_entropy_meta);
  m.impl("cross_entropy_", cross_entropy_meta_);
  m.impl("cross_entropy_forward", cross_entropy_forward_meta);
  m.impl("cross_entropy_forward_", cross_entropy_meta_);
  m.impl("cross_entropy_backward", cross_entropy_backward_meta);
  m.impl("cross_entropy_backward_", cross_entropy_backward_meta_);
}

}  // namespace

void check_dense_logits(const Tensor& logits, const Tensor& targets) {
  check_dense(kForwardTable, {logits, targets, 0.0, 0.0});
}
void check_dense_gradient(const Tensor& gradient, const Tensor& dloss, const Tensor& loss) {
  check_dense(kBackwardTable, {gradient, dloss, loss});
}

}  // namespace thunderkittens
