// arch/mma.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mma.cuh"
#include "sim/matrix_api.hpp"

namespace kittens::arch {

template <matrix_element T>
KITTENS_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                 const float (&c)[4], KITTENS_CALL_SITE) {
  constexpr auto kType = std::same_as<T, __half> ? sim::matrix_type::half : sim::matrix_type::bf16;
  sim::mma_m16n8k16(kType, d, a, b, c, site);
  sim::stay_on_stack();
}

}  // namespace kittens::arch
