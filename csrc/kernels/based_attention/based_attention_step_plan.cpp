// One token of based_attention: what is chosen before a launch, and the launch.
#include <algorithm>
#include <limits>

#include "kernels/based_attention/based_attention.h"
#include "kittens/host/text.h"

namespace thunderkittens {

using kittens::host::text;

std::string why_unsupported(const based_attention_step_problem& p) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (p.key_width < 1 || p.key_width > kBasedWidestKey) {
    return text("feature dimension ", p.key_width, " is not one of 1 … ", kBasedWidestKey);
  }
  if (p.value_width > kMost / 2 || p.heads > kMost / std::max<int64_t>(1, p.batch)) {
    return text(p.batch, " batches of ", p.heads, " heads of ", p.value_width,
                " values are too many");
  }
  return "";
}

based_attention_step_plan plan(const based_attention_step_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kBasedAttentionStep);
  refuse_unsupported(kernel.name(), p);
  if (!(p.scale > 0)) throw error(text(kernel.name(), ": scale must be above 0, got ", p.scale));
  return {p, kernel.on(d)};
}

void launch(const based_attention_step_plan& plan, const based_attention_step_tensors& t,
            const workspace&, stream s) {
  const based_attention_step_problem& p = plan.problem;
  if (p.batch == 0 || p.heads == 0) return;
  plan.kernel.launch({p, t}, s);
}

}  // namespace thunderkittens
