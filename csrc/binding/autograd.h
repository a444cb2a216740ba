// What every Autograd kernel asks of its inputs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <optional>

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

}  // namespace thunderkittens
