// arch/registers.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/registers.cuh"
#include "sim/matrix_api.hpp"

namespace kittens::arch {

template <int N>
KITTENS_DEVICE void raise_registers(KITTENS_CALL_SITE) {
  static_assert(is_register_count<N>, "raise_registers takes a multiple of 8 from 24 to 256");
  sim::raise_registers(N, site);
  sim::stay_on_stack();
}

template <int N>
KITTENS_DEVICE void lower_registers(KITTENS_CALL_SITE) {
  static_assert(is_register_count<N>, "lower_registers takes a multiple of 8 from 24 to 256");
  sim::lower_registers(N, site);
  sim::stay_on_stack();
}

}  // namespace kittens::arch
