// host/launch.cuh in the simulator.
#pragma once

#include <type_traits>

#include "kittens/host/launch_config.h"
#include "sim/api.hpp"

namespace kittens::host {

template <class... P>
void launch(void (*kernel)(P...), const launch_config& config, stream s,
            const std::type_identity_t<P>&... arguments) {
  const auto thread = [&] { kernel(arguments...); };
  using body = decltype(thread);
  sim::run(
      reinterpret_cast<const void*>(kernel), config, s,
      [](const void* context) { (*static_cast<body*>(context))(); }, &thread);
}

inline int multiprocessors() { return kSimulatedMultiprocessors; }

}  // namespace kittens::host
