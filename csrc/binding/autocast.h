// What ops do under autocast. Those of matrix products take its dtype (register_autocast). The
// others compute in float32 whatever they are given, and keep its dtype; but where autocast has
// left tensors of different dtypes, as a float32 weight or residual beside what a linear layer
// returns, they promote them as torch's own functions do (register_promotion).
#pragma once

#include <ATen/autocast_mode.h>

#include <optional>
#include <span>

#include "binding/op.h"

namespace thunderkittens {

// Registers autocast's dtype for an op (functions_of::in_autocast), of all its forms.
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

// For each argument the dtype that it is cast to, if it is. Tensors that must have one dtype get
// the widest of theirs; one that may also be float32 becomes that where it is neither.
using dtypes_taken = c10::SmallVector<std::optional<at::ScalarType>, 16>;
dtypes_taken promoted_dtypes(std::span<const argument> arguments, std::span<const value> values);

// Registers the promotion for an op, of all its forms. Op::kKeepsDtypes: its results have the
// dtypes that the tensors which they are like were given in.
template <class Op>
struct register_promotion {
  register_promotion() {
    enter<!kHidesResults<Op>>();
    if constexpr (kHidesResults<Op>) enter<true>();
  }

 private:
  struct promotion {
    static dtypes_taken of(std::span<const value> values) {
      return promoted_dtypes(Op::arguments.list, values);
    }
  };
  template <bool All>
  static void enter() {
    using functions = functions<Op, All>;
    implement(functions::name(), {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA},
              functions::template promoted<promotion>);
  }
};

}  // namespace thunderkittens
