// Ops that take autocast's dtype.
#pragma once

#include <ATen/autocast_mode.h>

#include "binding/op.h"

namespace thunderkittens {

// Registers `in_autocast` of an op, of all its forms.
template <class Op>
struct register_autocast {
  register_autocast() {
    enter<!kHidesResults<Op>>();
    if constexpr (kHidesResults<Op>) enter<true>();
  }

 private:
  template <bool All>
  static void enter() {
    using functions = functions<Op, All>;
    implement(functions::name(), c10::DispatchKey::AutocastCPU,
              torch::CppFunction(functions::template in_autocast<at::kCPU, autocast_to>));
    implement(functions::name(), c10::DispatchKey::AutocastCUDA,
              torch::CppFunction(functions::template in_autocast<at::kCUDA, autocast_to>));
  }

  // Casts as torch's own ops do, and keeps the copies of leaves that it has made.
  template <c10::DeviceType Device>
  struct autocast_to {
    c10::impl::ExcludeDispatchKeyGuard no_autocast{
        c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(Device))};
    auto operator()(const auto& t) const {
      return at::autocast::cached_cast(at::autocast::get_autocast_dtype(Device), t, Device);
    }
  };
};

}  // namespace thunderkittens
