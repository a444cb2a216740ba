// arch/matrix.cuh on the device. PTX ISA, Warp Level Matrix Instructions: ldmatrix, stmatrix,
// movmatrix.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/matrix.cuh"
#include "kittens/arch/shared.cuh"

namespace kittens::arch {

#define KITTENS_LOAD_MATRIX(options, names, address, ...)                                      \
  asm volatile("ldmatrix.sync.aligned.m8n8." options ".shared.b16 {" names "}, [" address "];" \
               : __VA_ARGS__                                                                   \
               : "r"(from)                                                                     \
               : "memory")
#define KITTENS_LOAD_MATRICES(transposed)                                                \
  if constexpr (Count == 1) {                                                            \
    KITTENS_LOAD_MATRIX("x1" transposed, "%0", "%1", "=r"(d[0]));                        \
  } else if constexpr (Count == 2) {                                                     \
    KITTENS_LOAD_MATRIX("x2" transposed, "%0, %1", "%2", "=r"(d[0]), "=r"(d[1]));        \
  } else {                                                                               \
    KITTENS_LOAD_MATRIX("x4" transposed, "%0, %1, %2, %3", "%4", "=r"(d[0]), "=r"(d[1]), \
                        "=r"(d[2]), "=r"(d[3]));                                         \
  }

template <bool Transposed, int Count>
KITTENS_DEVICE void load_matrix(uint32_t (&d)[Count], const void* row) {
  static_assert(Count == 1 || Count == 2 || Count == 4, "load_matrix loads 1, 2 or 4 matrices");
  const uint32_t from = shared_address(row);
  if constexpr (Transposed) {
    KITTENS_LOAD_MATRICES(".trans")
  } else {
    KITTENS_LOAD_MATRICES("")
  }
}

#undef KITTENS_LOAD_MATRICES
#undef KITTENS_LOAD_MATRIX

#define KITTENS_STORE_MATRIX(options, names, ...)                                                \
  asm volatile("stmatrix.sync.aligned.m8n8." options ".shared.b16 [%0], {" names "};" ::"r"(to), \
               __VA_ARGS__                                                                       \
               : "memory")
#define KITTENS_STORE_MATRICES(transposed)                                                   \
  if constexpr (Count == 1) {                                                                \
    KITTENS_STORE_MATRIX("x1" transposed, "%1", "r"(s[0]));                                  \
  } else if constexpr (Count == 2) {                                                         \
    KITTENS_STORE_MATRIX("x2" transposed, "%1, %2", "r"(s[0]), "r"(s[1]));                   \
  } else {                                                                                   \
    KITTENS_STORE_MATRIX("x4" transposed, "%1, %2, %3, %4", "r"(s[0]), "r"(s[1]), "r"(s[2]), \
                         "r"(s[3]));                                                         \
  }

template <bool Transposed, int Count>
KITTENS_DEVICE void store_matrix(void* row, const uint32_t (&s)[Count]) {
  static_assert(Count == 1 || Count == 2 || Count == 4, "store_matrix stores 1, 2 or 4 matrices");
  static_assert(kHasStoreMatrix || Count == 0, "store_matrix needs sm_90");
  const uint32_t to = shared_address(row);
  if constexpr (Transposed) {
    KITTENS_STORE_MATRICES(".trans")
  } else {
    KITTENS_STORE_MATRICES("")
  }
}

#undef KITTENS_STORE_MATRICES
#undef KITTENS_STORE_MATRIX

KITTENS_DEVICE uint32_t transpose_matrix(uint32_t word) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}

}  // namespace kittens::arch
