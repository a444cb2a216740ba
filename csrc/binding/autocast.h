// What ops do under autocast. Those of matrix products take its dtype. The others compute in
// float32 whatever they are given, and keep its dtype; but where autocast has left tensors of
// different dtypes, as a float32 weight or residual beside what a linear layer returns, they
// promote them as torch's own functions do.
#pragma once

#include <ATen/autocast_mode.h>

#include <optional>
#include <span>

#include "binding/arguments.h"

namespace thunderkittens {

enum class autocast_rule : uint8_t {
  none,     // nothing: it is not registered
  cast,     // autocast's dtype (functions_of::in_autocast)
  promote,  // one dtype for those that must have one (functions_of::promoted)
};

// Casts as torch's own ops do, and keeps the copies of leaves that it has made.
template <c10::DeviceType Device>
struct autocast_to {
  c10::impl::ExcludeDispatchKeyGuard no_autocast{
      c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(Device))};
  auto operator()(const auto& t) const {
    return at::autocast::cached_cast(at::autocast::get_autocast_dtype(Device), t, Device);
  }
};

// For each argument the dtype that it is cast to, if it is. Tensors that must have one dtype get
// the widest of theirs; one that may also be float32 becomes that where it is neither.
using dtypes_taken = c10::SmallVector<std::optional<at::ScalarType>, 16>;
dtypes_taken promoted_dtypes(std::span<const argument> arguments, std::span<const value> values);

}  // namespace thunderkittens
