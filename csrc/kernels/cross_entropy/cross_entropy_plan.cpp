// cross_entropy: what is chosen before a launch, and the launches.
#include "kernels/cross_entropy/cross_entropy.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::kernel_handle;
using kittens::host::text;

struct handles {
  kernel_handle<cross_entropy_count_params> count = kCrossEntropyCount;
  kernel_handle<cross_entropy_forward_params> forward = kCrossEntropyForward;
  kernel_handle<cross_entropy_total_params> total = kCrossEntropyTotal;
  kernel_handle<cross_entropy_backward_params> backward = kCrossEntropyBackward;
};
const handles& kernels() {
  static const handles all;
  return all;
}

std::string why_width(int64_t width) {
  if (width <= kCrossEntropyMaxWidth) return "";
  return text("width ", width, " is above ", kCrossEntropyMaxWidth);
}

bool is_reduced(const cross_entropy_forward_problem& p) {
  return p.reduction != loss_reduction::none;
}
bool is_mean(const cross_entropy_forward_problem& p) { return p.reduction == loss_reduction::mean; }

// Whether one launch reduces the losses, too.
bool adds_up(const cross_entropy_forward_problem& p, const device& d) {
  return is_reduced(p) && few_cross_entropy_rows(p.rows, p.width, d.multiprocessors) &&
         (d.is_simulated() || others_find_room(p.width, d.multiprocessors));
}

// The workspace of many rows: counts, then losses.
struct many_rows {
  int64_t* counts;
  float* loss;

  static constexpr int64_t kCountBytes = kCrossEntropyParts * int64_t{sizeof(int64_t)};
  static int64_t bytes(int64_t rows) { return kCountBytes + rows * int64_t{sizeof(float)}; }
  explicit many_rows(void* memory)
      : counts(static_cast<int64_t*>(memory)),
        loss(reinterpret_cast<float*>(counts + kCrossEntropyParts)) {}
};

cross_entropy_forward_params params_of(const cross_entropy_forward_problem& p,
                                       const cross_entropy_forward_tensors& t) {
  return {
      .logits = t.logits,
      .targets = t.targets,
      .gradient = p.gradient ? t.gradient : nullptr,
      .loss = t.loss,
      .total = nullptr,
      .mailboxes = nullptr,
      .counts = p.counted ? t.counts : nullptr,
      .dloss = t.dloss,
      .outside = t.outside,
      .rows = p.rows,
      .width = p.width,
      .stride = p.stride,
      .gradient_stride = p.gradient_stride,
      .dloss_stride = p.dloss_stride,
      .ignore_index = p.ignore_index,
      .label_smoothing = p.label_smoothing,
      .z_loss = p.z_loss,
      .int64_targets = p.int64_targets,
      .mean = p.counted,
      .type = p.type,
  };
}

}  // namespace

std::string why_unsupported(const cross_entropy_forward_problem& p) { return why_width(p.width); }
std::string why_unsupported(const cross_entropy_count_problem&) { return ""; }
std::string why_unsupported(const cross_entropy_total_problem&) { return ""; }
std::string why_unsupported(const cross_entropy_backward_problem& p) { return why_width(p.width); }

cross_entropy_forward_plan plan(const cross_entropy_forward_problem& p, const device& d) {
  refuse_unsupported("cross_entropy_forward", p);
  cross_entropy_forward_plan plan{
      {p, kernels().forward.on(d)}, kernels().count.on(d), kernels().total.on(d), adds_up(p, d)};
  if (plan.few) {
    plan.workspace.counters = p.rows;
  } else if (is_reduced(p)) {
    plan.workspace.bytes = many_rows::bytes(p.rows);
  }
  return plan;
}
cross_entropy_count_plan plan(const cross_entropy_count_problem& p, const device& d) {
  return {p, kernels().count.on(d)};
}
cross_entropy_total_plan plan(const cross_entropy_total_problem& p, const device& d) {
  return {p, kernels().total.on(d)};
}
cross_entropy_backward_plan plan(const cross_entropy_backward_problem& p, const device& d) {
  refuse_unsupported("cross_entropy_backward", p);
  return {p, kernels().backward.on(d)};
}

void launch(const cross_entropy_forward_plan& plan, const cross_entropy_forward_tensors& t,
            const workspace& work, stream s) {
  const cross_entropy_forward_problem& p = plan.problem;
  cross_entropy_forward_params params = params_of(p, t);
  if (!is_reduced(p)) return plan.kernel.launch(params, s);
  if (plan.few) {
    params.loss = nullptr;
    params.total = t.loss;
    params.mailboxes = reinterpret_cast<unsigned*>(work.counters);
    params.mean = is_mean(p);
    return plan.kernel.launch(params, s);
  }
  const many_rows memory(work.memory);
  const bool counted = is_mean(p) && p.gradient;
  params.loss = memory.loss;
  if (counted) {
    plan.count.launch({t.targets, memory.counts, p.rows, p.ignore_index, p.int64_targets}, s);
    params.counts = memory.counts;
    params.mean = true;
  }
  plan.kernel.launch(params, s);
  plan.total.launch({.loss = memory.loss,
                     .targets = is_mean(p) ? t.targets : nullptr,
                     .total = t.loss,
                     .rows = p.rows,
                     .ignore_index = p.ignore_index,
                     .int64_targets = p.int64_targets,
                     .counts = counted ? memory.counts : nullptr},
                    s);
}

void launch(const cross_entropy_count_plan& plan, const cross_entropy_count_tensors& t,
            const workspace&, stream s) {
  const cross_entropy_count_problem& p = plan.problem;
  plan.kernel.launch({t.targets, t.counts, p.rows, p.ignore_index, p.int64_targets}, s);
}

void launch(const cross_entropy_total_plan& plan, const cross_entropy_total_tensors& t,
            const workspace&, stream s) {
  const cross_entropy_total_problem& p = plan.problem;
  plan.kernel.launch({.loss = t.loss,
                      .targets = p.mean ? t.targets : nullptr,
                      .total = t.total,
                      .rows = p.rows,
                      .ignore_index = p.ignore_index,
                      .int64_targets = p.int64_targets,
                      .counts = t.counts},
                     s);
}

void launch(const cross_entropy_backward_plan& plan, const cross_entropy_backward_tensors& t,
            const workspace&, stream s) {
  const cross_entropy_backward_problem& p = plan.problem;
  plan.kernel.launch({.gradient = t.gradient,
                      .dloss = t.dloss,
                      .result = t.result,
                      .rows = p.rows,
                      .width = p.width,
                      .stride = p.stride,
                      .dloss_stride = p.dloss_stride,
                      .result_stride = p.result_stride,
                      .type = p.type},
                     s);
}

}  // namespace thunderkittens
