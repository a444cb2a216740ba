// AdamW as torch ops of lists, which thunderkittens.optim calls: a step of many parameters, and the
// global norm of their gradients.
//
// They are registered by hand: what binding/op.h makes of an op is for single tensors.
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/variable.h>

#include "binding/op.h"
#include "kernels/adamw/torch/adamw_update.hpp"

namespace thunderkittens {
namespace {

using adamw_torch::update_call;
using at::TensorList;
using c10::DispatchKey;

constexpr const char* kStep = "adamw_foreach";
constexpr const char* kNorm = "adamw_grad_norm";

void check_list(const char* name, TensorList list, TensorList params) {
  TORCH_CHECK_VALUE(list.size() == params.size(), kStep, ": ", name, " must have ", params.size(),
                    " tensors (as params), got ", list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    TORCH_CHECK_NOT_IMPLEMENTED(list[i].layout() == at::kStrided && !list[i].is_nested(), kStep,
                                ": ", name, "[", i,
                                "] must be a dense tensor, got one that is not");
    TORCH_CHECK_VALUE(list[i].device() == params[0].device(), kStep, ": ", name, "[", i,
                      "] must be on ", params[0].device(), " (params[0]'s device), got ",
                      list[i].device());
  }
}

void check_shapes(const char* name, TensorList list, TensorList params) {
  for (size_t i = 0; i < list.size(); ++i) {
    TORCH_CHECK_VALUE(list[i].sym_sizes() == params[i].sym_sizes(), kStep, ": ", name, "[", i,
                      "] must have shape ", params[i].sym_sizes(), " (as params[", i, "]), got ",
                      list[i].sym_sizes());
  }
}

template <class Allowed>
void check_dtypes(const char* name, TensorList list, const char* expected, const Allowed& allowed) {
  for (size_t i = 0; i < list.size(); ++i) {
    TORCH_CHECK_TYPE(allowed(i, list[i].scalar_type()), kStep, ": ", name, "[", i,
                     "] must have dtype ", expected, ", got ", list[i].scalar_type());
  }
}

// A tensor of one element beside the parameters.
void check_single(const char* name, const optional_tensor& t, TensorList params) {
  if (!t) return;
  TORCH_CHECK_VALUE(t->sym_numel() == 1 && t->device() == params[0].device(), kStep, ": ", name,
                    " must have one element on ", params[0].device(), ", got shape ",
                    t->sym_sizes(), " on ", t->device());
}

void check_call(const update_call& c) {
  const TensorList params = c.params;
  const auto is_float = [](at::ScalarType t) { return t == at::kFloat || t == at::kDouble; };
  check_list("params", params, params);
  check_dtypes("params", params, "float32, float16, bfloat16 or float64",
               [&](size_t, at::ScalarType t) {
                 return is_float(t) || t == at::kHalf || t == at::kBFloat16;
               });
  for (const auto& [name, list] : {std::pair("grads", c.grads), std::pair("exp_avgs", c.exp_avgs),
                                   std::pair("exp_avg_sqs", c.exp_avg_sqs)}) {
    check_list(name, list, params);
    check_shapes(name, list, params);
  }
  if (!c.masters.empty()) check_list("master_params", c.masters, params);
  check_shapes("master_params", c.masters, params);
  check_dtypes("grads", c.grads, "that of the parameter",
               [&](size_t i, at::ScalarType t) { return t == params[i].scalar_type(); });
  const auto of_moments = [&](size_t i, at::ScalarType t) {
    return t == c.exp_avgs[i].scalar_type() && (t == at::kBFloat16 || is_float(t));
  };
  check_dtypes("exp_avgs", c.exp_avgs, "float32, bfloat16 or float64", of_moments);
  check_dtypes("exp_avg_sqs", c.exp_avg_sqs, "that of exp_avgs", of_moments);
  const auto single = [](size_t, at::ScalarType t) { return t == at::kFloat; };
  check_dtypes("master_params", c.masters, "float32", single);
  check_list("steps", c.steps, params);
  check_dtypes("steps", c.steps, "float32", single);
  for (const Tensor& t : c.steps) check_single("each of steps", t, params);
  check_single("lr_tensor", c.lr, params);
  check_single("grad_norm", c.grad_norm, params);
  check_single("skipped", c.skipped, params);
  TORCH_CHECK_TYPE(!c.skipped || c.skipped->scalar_type() == at::kInt, kStep,
                   ": skipped must have dtype int32, got ", c.skipped->scalar_type());
  TORCH_CHECK_VALUE(c.numbers.size() == params.size(), kStep, ": numbers must have ", params.size(),
                    " integers, got ", c.numbers.size());
  adamw_torch::check_options(kStep, c.options);
}

// Calls `next` with a call's arguments as one update_call, which has been checked.
template <class Next>
struct step_function {
  static void call(c10::DispatchKeySet keys, TensorList grads, TensorList params,
                   TensorList exp_avgs, TensorList exp_avg_sqs, TensorList masters,
                   TensorList steps, const optional_tensor& lr_tensor,
                   const optional_tensor& grad_norm, const optional_tensor& skipped,
                   at::IntArrayRef numbers, double lr, double beta1, double beta2, double eps,
                   double weight_decay, bool maximize, std::optional<double> max_norm,
                   bool skip_nonfinite, bool stochastic_rounding, int64_t seed) {
    const update_call c{
        .grads = grads,
        .params = params,
        .exp_avgs = exp_avgs,
        .exp_avg_sqs = exp_avg_sqs,
        .masters = masters,
        .steps = steps,
        .numbers = numbers,
        .lr = lr_tensor,
        .grad_norm = grad_norm,
        .skipped = skipped,
        .options = {lr, beta1, beta2, eps, weight_decay, maximize, max_norm, skip_nonfinite,
                    stochastic_rounding, seed, 0},
    };
    if (params.empty()) return;
    check_call(c);
    Next::run(keys, c, grads, params, exp_avgs, exp_avg_sqs, masters, steps, lr_tensor, grad_norm,
              skipped, numbers, lr, beta1, beta2, eps, weight_decay, maximize, max_norm,
              skip_nonfinite, stochastic_rounding, seed);
  }
};

struct update_lists {
  static void run(c10::DispatchKeySet, const update_call& c, const auto&...) {
    adamw_torch::update(c);
  }
};
struct update_nothing {  // of tensors that hold no data
  static void run(c10::DispatchKeySet, const update_call&, const auto&...) {}
};

// The type of a function as the dispatcher calls it, without the keys.
template <class Function>
struct without_keys;
template <class... Args>
struct without_keys<void(c10::DispatchKeySet, Args...)> {
  using type = void(Args...);
};

// Where versions are counted: who saved what is written here has to notice.
struct count_versions {
  static void run(c10::DispatchKeySet keys, const update_call& c, const auto&... args) {
    using function = without_keys<decltype(step_function<update_lists>::call)>::type;
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("thunderkittens::adamw_foreach", "")
                               .typed<function>();
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);
    }
    for (const TensorList& list : {c.params, c.exp_avgs, c.exp_avg_sqs, c.masters, c.steps}) {
      for (const Tensor& t : list) torch::autograd::impl::bump_version(t);
    }
    if (c.skipped) torch::autograd::impl::bump_version(*c.skipped);
  }
};

Tensor norm_of(TensorList grads) {
  for (size_t i = 0; i < grads.size(); ++i) {
    TORCH_CHECK_NOT_IMPLEMENTED(grads[i].layout() == at::kStrided && !grads[i].is_nested(), kNorm,
                                ": grads[", i, "] must be a dense tensor, got one that is not");
    TORCH_CHECK_TYPE(at::isFloatingType(grads[i].scalar_type()), kNorm, ": grads[", i,
                     "] must be of a floating-point dtype, got ", grads[i].scalar_type());
    TORCH_CHECK_VALUE(grads[i].device() == grads[0].device(), kNorm, ": grads[", i, "] must be on ",
                      grads[0].device(), " (grads[0]'s device), got ", grads[i].device());
  }
  return adamw_torch::grad_norm(grads);
}
Tensor norm_of_nothing(TensorList grads) {
  at::TensorOptions options = grads.empty() ? at::TensorOptions() : grads[0].options();
  const bool is_double =
      std::ranges::any_of(grads, [](const Tensor& g) { return g.scalar_type() == at::kDouble; });
  return at::empty({}, options.dtype(is_double ? at::kDouble : at::kFloat));
}

struct registered_lists {
  registered_lists() {
    define(
        "adamw_foreach(Tensor[] grads, Tensor(b!)[] params, Tensor(c!)[] exp_avgs, "
        "Tensor(d!)[] exp_avg_sqs, Tensor(e!)[] master_params, Tensor(f!)[] steps, "
        "Tensor? lr_tensor, Tensor? grad_norm, Tensor(i!)? skipped, int[] numbers, *, float lr, "
        "float beta1, float beta2, float eps, float weight_decay, bool maximize, float? max_norm, "
        "bool skip_nonfinite, bool stochastic_rounding, int seed) -> ()");
    implement(kStep, {DispatchKey::CompositeExplicitAutograd}, step_function<update_lists>::call);
    implement(kStep, {DispatchKey::Meta}, step_function<update_nothing>::call);
    implement(kStep, {DispatchKey::ADInplaceOrView}, step_function<count_versions>::call);
    define("adamw_grad_norm(Tensor[] grads) -> Tensor");
    implement(kNorm, {DispatchKey::CompositeExplicitAutograd}, norm_of);
    implement(kNorm, {DispatchKey::Meta}, norm_of_nothing);
  }
};
const registered_lists registered_adamw_lists;

}  // namespace
}  // namespace thunderkittens
