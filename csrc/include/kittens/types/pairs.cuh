// Arithmetic of two 16-bit elements in one word, packed: without floats.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/types/dtype.cuh"

namespace kittens {

// Both products, each rounded once.
template <element T>
  requires(sizeof(T) == 2)
KITTENS_DEVICE uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  using pair = std::conditional_t<std::same_as<T, bf16>, __nv_bfloat162, __half2>;
  pair x, y;
  std::memcpy(static_cast<void*>(&x), &a, sizeof(x));
  std::memcpy(static_cast<void*>(&y), &b, sizeof(y));
  const pair product = __hmul2(x, y);
  uint32_t words;
  std::memcpy(&words, &product, sizeof(words));
  return words;
}

}  // namespace kittens
