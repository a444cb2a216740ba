// One token of linear attention: what is chosen before a launch, and the launch.
#include <algorithm>
#include <limits>

#include "kernels/linear_attention/linear_attention_step.h"
#include "kittens/host/text.h"

namespace thunderkittens {

using kittens::host::text;

std::string why_unsupported(const linear_attention_step_problem& p) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (p.key_width < 1 || p.key_width > kLinearAttentionStepKeys) {
    return text("head dimension ", p.key_width, " is not one of 1 … ", kLinearAttentionStepKeys);
  }
  const int64_t parts = p.value_width / kLinearAttentionStepValues + 1;
  if (p.value_width > kMost / 2 || p.heads > kMost / parts ||
      p.batch > kMost / std::max<int64_t>(1, p.heads * parts)) {
    return text(p.batch, " batches of ", p.heads, " heads of ", p.value_width,
                " values are too many");
  }
  return "";
}

linear_attention_step_plan plan(const linear_attention_step_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kLinearAttentionStep);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d)};
}

void launch(const linear_attention_step_plan& plan, const linear_attention_step_tensors& t,
            const workspace&, stream s) {
  const linear_attention_step_problem& p = plan.problem;
  if (p.batch == 0 || p.heads == 0 || p.value_width == 0) return;
  plan.kernel.launch({p, t}, s);
}

}  // namespace thunderkittens
