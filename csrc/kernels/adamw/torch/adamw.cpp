// adamw as a torch op: one parameter, updated in place. Not differentiable.
#include "binding/backend.h"
#include "binding/op.h"
#include "binding/overlap.h"
#include "kernels/adamw/torch/adamw_update.hpp"

namespace thunderkittens {
namespace {

using adamw_torch::update_options;

void check_writable(const Tensor& grad, const Tensor& param, const Tensor& exp_avg,
                    const Tensor& exp_avg_sq) {
  const std::pair<const char*, const Tensor&> written[] = {
      {"param", param}, {"exp_avg", exp_avg}, {"exp_avg_sq", exp_avg_sq}};
  for (size_t i = 0; i < std::size(written); ++i) {
    const auto& [name, t] = written[i];
    check_no_overlap("adamw", name, t, ", since it is written in place");
    check_no_overlap("adamw", name, t, "grad", grad, ", since it is written in place");
    for (size_t j = 0; j < i; ++j) {
      const auto& [other, u] = written[j];
      check_no_overlap("adamw", name, t, other, u, ", since both are written in place");
    }
  }
}

void check_grad_norm(const Tensor& grad, const optional_tensor& norm) {
  if (!norm) return;
  TORCH_CHECK_NOT_IMPLEMENTED(norm->layout() == at::kStrided && !norm->is_nested(),
                              "adamw: grad_norm must be a dense tensor, got one that is not");
  TORCH_CHECK_TYPE(norm->scalar_type() == at::kFloat || norm->scalar_type() == at::kDouble,
                   "adamw: grad_norm must have dtype float32 or float64, got ",
                   norm->scalar_type());
  TORCH_CHECK_VALUE(norm->sym_numel().sym_eq(1).expect_true(__FILE__, __LINE__),
                    "adamw: grad_norm must have one element, got shape ", norm->sym_sizes());
  TORCH_CHECK_VALUE(norm->device() == grad.device(), "adamw: grad_norm must be on ", grad.device(),
                    " (grad's device), got ", norm->device());
}

struct adamw {
  static constexpr const char* name = "adamw";
  static constexpr argument_list arguments{
      tensor("grad", dtype_rule::floating, "*"),
      tensor("param", dtype_rule::same, "*"),
      tensor("exp_avg", dtype_rule::floating, "*"),
      tensor("exp_avg_sq", dtype_rule::floating, "*"),
      optional(tensor("grad_norm")).otherwise("None"),
      integer("step", 1).by_name(),
      number("lr").otherwise("1e-3"),
      number("beta1").otherwise("0.9"),
      number("beta2").otherwise("0.999"),
      number("eps", 0.0).otherwise("1e-8"),
      number("weight_decay").otherwise("1e-2"),
      boolean("maximize").otherwise("False"),
      optional(number("max_norm", 0.0)).otherwise("None"),
      boolean("skip_nonfinite").otherwise("False"),
      boolean("stochastic_rounding").otherwise("False"),
      integer("seed").otherwise("0"),
  };
  static constexpr result_list results{};
  static constexpr size_t kWritten = 3, kFirstWritten = 1;
  static constexpr bool kCountsVersions = true;
  static constexpr std::string_view kNoGradient =
      "parameters are written in place: call it under torch.no_grad()";

  static update_options options_of(int64_t step, double lr, double beta1, double beta2, double eps,
                                   double weight_decay, bool maximize,
                                   std::optional<double> max_norm, bool skip_nonfinite,
                                   bool stochastic_rounding, int64_t seed) {
    return {lr,
            beta1,
            beta2,
            eps,
            weight_decay,
            maximize,
            max_norm,
            skip_nonfinite,
            stochastic_rounding,
            seed,
            static_cast<double>(step)};
  }

  static void check_options(const Tensor& grad, const Tensor&, const Tensor& exp_avg,
                            const Tensor& exp_avg_sq, const optional_tensor& grad_norm,
                            const auto&... options) {
    TORCH_CHECK_TYPE(exp_avg_sq.scalar_type() == exp_avg.scalar_type(),
                     "adamw: exp_avg_sq must have exp_avg's dtype, ", exp_avg.scalar_type(),
                     ", got ", exp_avg_sq.scalar_type());
    check_grad_norm(grad, grad_norm);
    adamw_torch::check_options("adamw", options_of(options...));
  }

  static void compute(const Tensor& grad, const Tensor& param, const Tensor& exp_avg,
                      const Tensor& exp_avg_sq, const optional_tensor& grad_norm,
                      const auto&... options) {
    check_writable(grad, param, exp_avg, exp_avg_sq);
    const update_options o = options_of(options...);
    const bool needs_norm = !grad_norm && (o.max_norm || o.skip_nonfinite);
    adamw_torch::update({
        .grads = grad,
        .params = param,
        .exp_avgs = exp_avg,
        .exp_avg_sqs = exp_avg_sq,
        .grad_norm =
            needs_norm && explaining() == nullptr ? adamw_torch::grad_norm(grad) : grad_norm,
        .options = o,
    });
  }
};

const register_ops<adamw> registered_adamw;

}  // namespace
}  // namespace thunderkittens
