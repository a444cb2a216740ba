// arch/matrix.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/matrix.cuh"
#include "sim/matrix_api.hpp"

namespace kittens::arch {

template <bool Transposed, int Count>
KITTENS_DEVICE void load_matrix(uint32_t (&d)[Count], const void* row, KITTENS_CALL_SITE) {
  static_assert(Count == 1 || Count == 2 || Count == 4, "load_matrix loads 1, 2 or 4 matrices");
  sim::load_matrix(d, Count, Transposed, row, site);
  sim::stay_on_stack();
}

template <bool Transposed, int Count>
KITTENS_DEVICE void store_matrix(void* row, const uint32_t (&s)[Count], KITTENS_CALL_SITE) {
  static_assert(Count == 1 || Count == 2 || Count == 4, "store_matrix stores 1, 2 or 4 matrices");
  sim::store_matrix(row, s, Count, Transposed, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE uint32_t transpose_matrix(uint32_t word, KITTENS_CALL_SITE) {
  return sim::transpose_matrix(word, site);
}

}  // namespace kittens::arch
