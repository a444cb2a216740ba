// cross_entropy, row by row: through the kernels, or by ATen.
#include <ATen/ATen.h>

#include "binding/launch.h"
#include "binding/layout.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"

namespace thunderkittens {

loss_options::loss_options(int64_t ignore_index, std::string_view name, double label_smoothing,
                           double z_loss)
    : ignore_index(ignore_index),
      reduce(name == "none"  ? loss_reduction::none
             : name == "sum" ? loss_reduction::sum
                             : loss_reduction::mean),
      label_smoothing(label_smoothing),
      z_loss(z_loss) {}

decision decide_loss(const kernel& wanted, const Tensor& t, int64_t width) {
  const decision d = decide(wanted, t, cross_entropy_backward_problem{.width = width});
  if (!d.explained) raise_target_outside(d);
  return d;
}

namespace {

const kernel kCountKernel("cross_entropy", kCrossEntropyCount);
const kernel kTotalKernel("cross_entropy", kCrossEntropyTotal);

// ---- ATen ---------------------------------------------------------------------------------------

// logits [rows, V], the rest [rows], all of them of statistics_dtype.
void compute_rows_aten(const loss_options& o, const loss_rows& rows) {
  const Tensor x = rows.logits.to(statistics_dtype(rows.logits)),
               targets = rows.targets.to(at::kLong);
  const int64_t width = x.size(-1);
  const Tensor ignored = targets.eq(o.ignore_index);
  const Tensor outside = targets.lt(0).logical_or_(targets.ge(width)).logical_and_(~ignored);
  const Tensor column = targets.masked_fill(ignored.logical_or(outside), 0).unsqueeze_(-1);

  const Tensor log_p = at::log_softmax(x, -1);
  log_p.masked_fill_(outside.unsqueeze(-1), std::numeric_limits<double>::quiet_NaN());
  const Tensor lse = o.z_loss > 0 ? at::logsumexp(x, -1, /*keepdim=*/true) : Tensor();
  const double smooth = o.label_smoothing / static_cast<double>(width);
  if (rows.loss.defined()) {
    Tensor loss = log_p.gather(-1, column).mul_(o.label_smoothing - 1);
    if (o.label_smoothing > 0) loss.sub_(log_p.sum(-1, /*keepdim=*/true).mul_(smooth));
    if (o.z_loss > 0) loss.add_(o.z_loss * lse.square());
    rows.loss.copy_(loss.squeeze(-1).masked_fill_(ignored, 0));
  }
  if (!rows.gradient.defined()) return;
  const Tensor gradient = log_p.exp_();
  if (o.z_loss > 0) gradient.mul_(1 + 2 * o.z_loss * lse);
  if (o.label_smoothing > 0) gradient.sub_(smooth);
  gradient.scatter_add_(-1, column, at::full_like(column, o.label_smoothing - 1, x.options()));
  if (rows.dloss.defined()) gradient.mul_(rows.dloss.unsqueeze(-1));
  if (rows.counts.defined()) gradient.div_(rows.counts);
  rows.gradient.copy_(gradient.masked_fill_(ignored.unsqueeze(-1), 0));
}

// ---- Kernels ------------------------------------------------------------------------------------

void compute_rows_kernel(const decision& d, const loss_options& o, const loss_rows& rows) {
  const rows_view logits = as_rows(rows.logits);
  const int64_t width = rows.logits.size(-1);
  const bool gradient = rows.gradient.defined(), reduced = rows.total.defined();
  launch(d,
         cross_entropy_forward_problem{
             .rows = rows.logits.numel() / width,
             .width = width,
             .stride = logits.stride,
             .gradient = gradient,
             .gradient_stride = gradient ? *row_stride(rows.gradient) : 0,
             .dloss_stride = rows.dloss.defined() ? *row_stride(rows.dloss.unsqueeze(-1)) : 0,
             .ignore_index = o.ignore_index,
             .reduction = reduced ? o.reduce : loss_reduction::none,
             .counted = rows.counts.defined(),
             .label_smoothing = static_cast<float>(o.label_smoothing),
             .z_loss = static_cast<float>(o.z_loss),
             .int64_targets = rows.targets.scalar_type() == at::kLong,
             .type = *kernel_dtype(rows.logits.scalar_type()),
         },
         cross_entropy_forward_tensors{
             .logits = input(logits.tensor),
             .targets = input(rows.targets),
             .loss = output<float>(reduced ? rows.total : rows.loss),
             .gradient = output(rows.gradient),
             .counts = input<int64_t>(rows.counts),
             .dloss = input<float>(rows.dloss),
             .outside = word_for_target_outside(d),
         });
}

}  // namespace

void compute_rows(const decision& d, const loss_options& o, const loss_rows& rows) {
  return d.on == nullptr ? compute_rows_aten(o, rows) : compute_rows_kernel(d, o, rows);
}

Tensor count_targets(const decision& d, const loss_options& o, const Tensor& targets) {
  if (d.on == nullptr) return targets.ne(o.ignore_index).sum();
  const Tensor counts = at::empty({kCrossEntropyParts}, targets.options().dtype(at::kLong));
  launch(decide(kCountKernel, targets.device(), ""),
         cross_entropy_count_problem{
             .rows = targets.numel(),
             .ignore_index = o.ignore_index,
             .int64_targets = targets.scalar_type() == at::kLong,
         },
         cross_entropy_count_tensors{
             .targets = input(targets),
             .counts = output<int64_t>(counts),
         });
  return counts;
}

Tensor reduce_losses(const decision& d, const loss_options& o, const Tensor& loss,
                     const Tensor& targets, const Tensor& counts) {
  if (o.reduce == loss_reduction::none) return loss;
  const bool mean = o.reduce == loss_reduction::mean;
  if (d.on == nullptr) {
    const Tensor total = loss.sum();
    if (!mean) return total;
    return total / (counts.defined() ? counts : count_targets(d, o, targets));
  }
  const Tensor total = at::empty({}, loss.options());
  launch(decide(kTotalKernel, loss.device(), ""),
         cross_entropy_total_problem{
             .rows = loss.numel(),
             .ignore_index = o.ignore_index,
             .mean = mean,
             .int64_targets = targets.scalar_type() == at::kLong,
         },
         cross_entropy_total_tensors{
             .loss = input<float>(loss),
             .targets = input(targets),
             .total = output<float>(total),
             .counts = input<int64_t>(counts),
         });
  return total;
}

}  // namespace thunderkittens
