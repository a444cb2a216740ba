// The norms: what is chosen before a launch, and the launch.
#include "kernels/norm/norm.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::kernel_handle;
using kittens::host::text;

const kernel_handle<norm_forward_params>& forward_of(norm_op op) {
  static const kernel_handle<norm_forward_params> handles[] = {
      kLayerNormForward, kRmsNormForward, kAddLayerNormForward, kAddRmsNormForward};
  return handles[static_cast<size_t>(op)];
}
const kernel_handle<norm_backward_params>& backward_of(norm_op op) {
  static const kernel_handle<norm_backward_params> handles[] = {
      kLayerNormBackward, kRmsNormBackward, kAddLayerNormBackward, kAddRmsNormBackward};
  return handles[static_cast<size_t>(op)];
}

constexpr bool has_mean(norm_op op) {
  return op == norm_op::layer_norm || op == norm_op::add_layer_norm;
}

std::string why_width(int64_t width) {
  if (width <= kNormMaxWidth) return "";
  return text("width ", width, " is above ", kNormMaxWidth);
}

norm_backward_path path_of(const norm_backward_problem& p, const device& d) {
  if (p.width > kNormFusedWidth) return norm_backward_path::long_rows;
  const bool few = p.rows <= int64_t{2} * d.multiprocessors;
  if (few && p.dy_rows.count == 1 && p.x_rows.count == 1) return norm_backward_path::few;
  return p.width <= kNormNarrowWidth ? norm_backward_path::narrow : norm_backward_path::rows;
}

int64_t partial_rows(const norm_backward_problem& p, norm_backward_path path, const device& d) {
  const auto blocks_of = [&](int64_t groups, int64_t most) {
    return std::min<int64_t>((p.rows + groups - 1) / groups, d.multiprocessors * most);
  };
  switch (path) {
    case norm_backward_path::few: return 0;
    case norm_backward_path::narrow: {
      using narrow = norm_narrow_shape;
      return blocks_of(narrow::of(p.width).rows_of(narrow::kBackwardThreads),
                       narrow::kBackwardBlocks);
    }
    case norm_backward_path::rows: {
      const auto shape = norm_backward_shape::of(p.width);
      return blocks_of(shape.groups, shape.blocks_per_multiprocessor());
    }
    case norm_backward_path::long_rows: return std::min<int64_t>(p.rows, 64);
  }
  return 0;
}

}  // namespace

std::string why_unsupported(const norm_forward_problem& p) { return why_width(p.width); }
std::string why_unsupported(const norm_backward_problem& p) { return why_width(p.width); }

norm_forward_plan plan(const norm_forward_problem& p, const device& d) {
  const auto& kernel = forward_of(p.op);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d)};
}

norm_backward_plan plan(const norm_backward_problem& p, const device& d) {
  const auto& kernel = backward_of(p.op);
  refuse_unsupported(kernel.name(), p);
  const norm_backward_path path = path_of(p, d);
  norm_backward_plan plan{{p, kernel.on(d)}, path, partial_rows(p, path, d)};
  if (p.parameter_gradients) {
    const int64_t sums = has_mean(p.op) ? 2 : 1;
    plan.workspace.bytes = sums * plan.partial_rows * p.width * int64_t{sizeof(float)};
  }
  return plan;
}

void launch(const norm_forward_plan& plan, const norm_forward_tensors& tensors, const workspace&,
            stream s) {
  norm_forward_params params{plan.problem, tensors,
                             dropout_params::of(plan.problem.dropout_p, tensors.seed)};
  if (tensors.weight == nullptr) params.weight_offset = 0.0f;
  plan.kernel.launch(params, s);
}

void launch(const norm_backward_plan& plan, const norm_backward_tensors& tensors,
            const workspace& work, stream s) {
  norm_backward_params params{plan.problem,
                              tensors,
                              dropout_params::of(plan.problem.dropout_p, tensors.seed),
                              plan.workspace.bytes > 0 ? static_cast<float*>(work.memory) : nullptr,
                              plan.partial_rows,
                              plan.path};
  if (tensors.weight == nullptr) params.weight_offset = 0.0f;
  plan.kernel.launch(params, s);
}

}  // namespace thunderkittens
