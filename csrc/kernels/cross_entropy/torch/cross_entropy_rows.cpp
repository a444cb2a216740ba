// cross_entropy, row by row: through the kernels, or by ATen.
#include <ATen/ATen.h>

#include "binding/launch.h"
#include "binding/layout.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"

namespace thunderkittens {

using at::Tensor;

loss_options::loss_options(const char* op, int64_t ignore_index, std::string_view name,
                           double label_smoothing, double z_loss)
    : ignore_index(ignore_index),
      reduce(name == "none"  ? loss_reduction::none
             : name == "sum" ? loss_reduction::sum
                             : loss_reduction::mean),
      label_smoothing(label_smoothing),
      z_loss(z_loss) {
  TORCH_CHECK_VALUE(label_smoothing <= 1.0, op, ": label_smoothing must be <= 1, got ",
                    label_smoothing);
}

std::string why_no_cross_entropy_kernel(at::ScalarType type, int64_t width) {
  if (!kernel_dtype(type)) return "float64 is computed by torch";
  if (width > kCrossEntropyMaxWidth) {
    return c10::str("width ", width, " is above ", kCrossEntropyMaxWidth);
  }
  return "";
}

Tensor empty_losses(const Tensor& like) {
  return at::empty_symint(leading_sizes(like), like.options().dtype(statistics_dtype(like)));
}
c10::SymIntArrayRef leading_sizes(const Tensor& like) {
  return like.sym_sizes().slice(0, like.dim() - 1);
}

namespace {

const kernel kCountKernel("cross_entropy", kCrossEntropyCount);
const kernel kTotalKernel("cross_entropy", kCrossEntropyTotal);

const void* data_or_null(const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }

// ---- ATen ---------------------------------------------------------------------------------------

// logits [rows, V], the rest [rows], all of them of statistics_dtype.
void compute_rows_aten(const loss_options& o, const loss_rows& rows) {
  const Tensor x = rows.logits.to(statistics_dtype(rows.logits)),
               targets = rows.targets.to(at::kLong);
  const int64_t width = x.size(-1);
  const Tensor ignored = targets.eq(o.ignore_index);
  const Tensor outside = targets.lt(0).logical_or_(targets.ge(width)).logical_and_(~ignored);
  const Tensor column = targets.masked_fill(ignored.logical_or(outside), 0).unsqueeze_(-1);

  // All is computed from x − top, of which no digits are lost where the row lies far from 0.
  const Tensor top = x.amax(-1, /*keepdim=*/true);
  Tensor below = x - top;
  Tensor log_sum = below.exp().sum(-1, /*keepdim=*/true).log_();
  log_sum.masked_fill_(outside.unsqueeze(-1), std::numeric_limits<double>::quiet_NaN());
  const Tensor lse = o.z_loss > 0 ? log_sum + top : Tensor();
  const double smooth = o.label_smoothing / static_cast<double>(width);
  if (rows.loss.defined()) {
    Tensor loss = log_sum - (1 - o.label_smoothing) * below.gather(-1, column);
    if (o.label_smoothing > 0) loss.sub_(below.sum(-1, /*keepdim=*/true).mul_(smooth));
    if (o.z_loss > 0) loss.add_(o.z_loss * lse.square());
    rows.loss.copy_(loss.squeeze(-1).masked_fill_(ignored, 0));
  }
  if (!rows.gradient.defined()) return;
  Tensor gradient = below.sub_(log_sum).exp_();
  if (o.z_loss > 0) gradient.mul_(1 + 2 * o.z_loss * lse);
  if (o.label_smoothing > 0) gradient.sub_(smooth);
  gradient.scatter_add_(-1, column, at::full_like(log_sum, o.label_smoothing - 1));
  if (rows.dloss.defined()) gradient.mul_(rows.dloss.unsqueeze(-1));
  if (rows.counts.defined()) gradient.div_(rows.counts);
  rows.gradient.copy_(gradient.masked_fill_(ignored.unsqueeze(-1), 0));
}

// ---- Kernels ------------------------------------------------------------------------------------

void compute_rows_kernel(const decision& d, const loss_options& o, const loss_rows& rows) {
  const rows_view logits = as_rows(rows.logits);
  const int64_t width = rows.logits.size(-1);
  const bool gradient = rows.gradient.defined(), reduced = rows.total.defined();
  const Tensor& loss = reduced ? rows.total : rows.loss;
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
             .logits = logits.tensor.const_data_ptr(),
             .targets = rows.targets.const_data_ptr(),
             .loss = loss.defined() ? loss.mutable_data_ptr<float>() : nullptr,
             .gradient = gradient ? rows.gradient.mutable_data_ptr() : nullptr,
             .counts = static_cast<const int64_t*>(data_or_null(rows.counts)),
             .dloss = static_cast<const float*>(data_or_null(rows.dloss)),
             .outside = word_for_target_outside(d, rows.logits.device()),
         },
         rows.logits.device());
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
             .targets = targets.const_data_ptr(),
             .counts = counts.mutable_data_ptr<int64_t>(),
         },
         targets.device());
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
             .loss = loss.const_data_ptr<float>(),
             .targets = targets.const_data_ptr(),
             .total = total.mutable_data_ptr<float>(),
             .counts = static_cast<const int64_t*>(data_or_null(counts)),
         },
         loss.device());
  return total;
}

}  // namespace thunderkittens
