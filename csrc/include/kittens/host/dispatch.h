// From a run-time value to a compile-time constant.
//
//   dispatch<64, 128>("head_dim", d, [&]<int D> { launch_for<D>(…); });
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "kittens/host/launchers.h"

namespace kittens::host {
namespace detail {

template <int First, int... Values, class Function>
decltype(auto) dispatch_among(int64_t value, Function&& function) {
  if constexpr (sizeof...(Values) > 0) {
    if (value != First) {
      return dispatch_among<Values...>(value, std::forward<Function>(function));
    }
  }
  return function.template operator()<First>();
}

}  // namespace detail

// Calls function.operator()<V>() for the V among `Values` that equals `value`, and returns its
// result.
template <int... Values, class Function>
decltype(auto) dispatch(const char* name, int64_t value, Function&& function) {
  static_assert(sizeof...(Values) > 0, "dispatch needs at least one value");
  if (((value != Values) && ...)) {
    std::string supported;
    ((supported += (supported.empty() ? "" : ", ") + std::to_string(Values)), ...);
    throw error(std::string(name) + " = " + std::to_string(value) + " is not one of " + supported);
  }
  return detail::dispatch_among<Values...>(value, std::forward<Function>(function));
}

}  // namespace kittens::host
