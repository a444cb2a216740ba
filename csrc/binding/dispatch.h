// Whether a call has anything left to pass through but autograd and a backend.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace thunderkittens {

template <class T>
inline constexpr bool kIsTensor = std::is_same_v<std::remove_cvref_t<T>, at::Tensor> ||
                                  std::is_same_v<std::remove_cvref_t<T>, std::optional<at::Tensor>>;

// Whether a call with these keys, whose tensors are plain ones of one device, meets nobody but
// autograd, autocast and the backend: no mode or subclass of Python's, no functionalisation, no
// transform of torch.func. Then the implementation may be called without the dispatcher.
inline bool is_plain(c10::DispatchKeySet keys) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kPassed = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                          c10::autocast_dispatch_keyset |
                                          c10::DispatchKeySet(DispatchKey::BackendSelect);
  const c10::DispatchKeySet rest = keys - kPassed;
  return rest == c10::DispatchKeySet(DispatchKey::CPU) ||
         rest == c10::DispatchKeySet(DispatchKey::CUDA);
}

// The keys with which the dispatcher would begin a call with these arguments.
template <class... Args>
c10::DispatchKeySet keys_of(const Args&... args) {
  c10::DispatchKeySet keys;
  const auto add = [&]<class T>(const T& a) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      if (a.defined()) keys = keys | a.key_set();
    } else if constexpr (kIsTensor<T>) {
      if (a && a->defined()) keys = keys | a->key_set();
    }
  };
  (add(args), ...);
  const c10::impl::LocalDispatchKeySet state = c10::impl::tls_local_dispatch_key_set();
  return (keys | state.included_) - state.excluded_;
}

// Whether one of the arguments is a tensor that needs a gradient, and gradients are recorded.
template <class... Args>
bool records_gradient(const Args&... args) {
  const auto wanted = []<class T>(const T& a) {
    if constexpr (std::is_same_v<T, at::Tensor>) return a.requires_grad();
    if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) return a && a->requires_grad();
    return false;
  };
  return at::GradMode::is_enabled() && (wanted(args) || ...);
}

// Raises when an argument carries a forward-mode gradient, which would otherwise be dropped
// silently.
template <class... Args>
void refuse_forward_mode(const char* op, const Args&... args) {
  const auto carries = []<class T>(const T& a) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return a.defined() && a._fw_grad(/*level=*/0).defined();
    } else if constexpr (kIsTensor<T>) {
      return a && a->defined() && a->_fw_grad(/*level=*/0).defined();
    }
    return false;
  };
  TORCH_CHECK_NOT_IMPLEMENTED(!(carries(args) || ...), op,
                              ": forward-mode differentiation is not supported");
}

// No autocast as long as it lives. A backward computes in the dtypes of its forward, wherever it is
// called: inside autocast, ATen's products would be cast down.
class without_autocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

}  // namespace thunderkittens
