// What every Autograd kernel asks of its inputs, and what it leaves for the backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <tuple>

#include "binding/backend.h"

namespace thunderkittens {

// Whether a backward is to be recorded for an op with these inputs.
template <class... Tensors>
bool records_gradient(const Tensors&... tensors) {
  const auto wanted = [](const std::optional<at::Tensor>& t) { return t && t->requires_grad(); };
  return at::GradMode::is_enabled() && (wanted(tensors) || ...);
}

// Raises when an input carries a forward-mode gradient, which would otherwise be dropped silently.
template <class... Tensors>
void refuse_forward_mode(const char* op, const Tensors&... tensors) {
  const auto carries = [](const std::optional<at::Tensor>& t) {
    return t && t->defined() && t->_fw_grad(/*level=*/0).defined();
  };
  TORCH_CHECK_NOT_IMPLEMENTED(!(carries(tensors) || ...), op,
                              ": forward-mode differentiation is not supported");
}

// The backend of a forward, for its backward, which autograd runs on another thread.
inline void save_backend(torch::autograd::AutogradContext* ctx) {
  if (current_backend() == backend::automatic) return;
  ctx->saved_data["backend"] = static_cast<int64_t>(current_backend());
}
inline backend saved_backend(torch::autograd::AutogradContext* ctx) {
  const auto found = ctx->saved_data.find("backend");
  return found == ctx->saved_data.end() ? backend::automatic : backend(found->second.toInt());
}

// No autocast as long as it lives. A backward computes in the dtypes of its forward, wherever it is
// called: inside autocast, ATen's products would be cast down.
class without_autocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

// The same for results that ATen ops differentiate themselves: the nodes of the graph between
// `inputs` and `results` will run without autocast.
void differentiate_without_autocast(const torch::autograd::variable_list& results,
                                    const torch::autograd::variable_list& inputs);

namespace detail {

template <class... Tensors>
torch::autograd::variable_list as_list(const std::tuple<Tensors...>& tensors) {
  return std::apply([](const Tensors&... t) { return torch::autograd::variable_list{t...}; },
                    tensors);
}
inline torch::autograd::variable_list as_list(const at::Tensor& tensor) { return {tensor}; }

template <class... Tensors>
void from_list(std::tuple<Tensors...>& tensors, torch::autograd::variable_list& list) {
  auto next = list.begin();
  std::apply([&](Tensors&... t) { ((t = std::move(*next++)), ...); }, tensors);
}
inline void from_list(at::Tensor& tensor, torch::autograd::variable_list& list) {
  tensor = std::move(list[0]);
}

// Calls an op below autograd, and raises where its results are differentiated.
template <class Results, class... Args>
struct not_differentiable : torch::autograd::Function<not_differentiable<Results, Args...>> {
  using handle = c10::TypedOperatorHandle<Results(Args...)>;

  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx,
                                                const char* name, const handle& op, Args... args) {
    ctx->saved_data["name"] = name;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return as_list(op.call(args...));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, ctx->saved_data["name"].toStringRef(),
                                ": double backward is not supported");
  }
};

}  // namespace detail

// The Autograd kernel of the op that computes the gradients of the public function `name`. Those
// are not differentiable themselves: without this, a double backward would be silently wrong.
// `recorded`: whether a tensor on which they depend needs a gradient (`records_gradient`).
template <class Results, class... Args>
Results once_differentiable(const char* name, const c10::TypedOperatorHandle<Results(Args...)>& op,
                            c10::DispatchKeySet keys, bool recorded,
                            std::type_identity_t<Args>... args) {
  const without_autocast guard;
  if (!recorded) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return op.redispatch(keys & c10::after_autograd_keyset, args...);
  }
  auto list = detail::not_differentiable<Results, Args...>::apply(name, op, args...);
  Results results;
  detail::from_list(results, list);
  return results;
}

}  // namespace thunderkittens
