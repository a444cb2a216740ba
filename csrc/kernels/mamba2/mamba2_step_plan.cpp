// mamba2, one token: whether there is a kernel, and the launch.
#include <limits>

#include "kernels/mamba2/mamba2.h"
#include "kittens/host/text.h"

namespace thunderkittens {

using kittens::host::text;

std::string why_unsupported(const mamba2_step_problem& p) {
  if (p.state_width > kMamba2StepWidest) {
    return text("state dimension ", p.state_width, " is above ", kMamba2StepWidest);
  }
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (p.head_width > 0 && p.heads > 0 && p.batch > kMost / p.heads / p.head_width) {
    return text(p.batch, " batches of ", p.heads, " heads are too many");
  }
  return "";
}

mamba2_step_plan plan(const mamba2_step_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kMamba2Step);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d)};
}

void launch(const mamba2_step_plan& plan, const mamba2_step_tensors& t, const workspace&,
            stream s) {
  plan.kernel.launch({plan.problem, t}, s);
}

}  // namespace thunderkittens
