// mma.sync: the product of two small matrices by the tensor cores, of one warp. All lanes call,
// from the same place.
//
//   mma_m16n8k16<T>(d, a, b, c)   d = a·b + c in float; T is __nv_bfloat16 or __half
//     float (&d)[4], (&c)[4]      of 16 × 8
//     const uint32_t (&a)[4]      of 16 × 16, two neighbours of a row in each word, the first low
//     const uint32_t (&b)[2]      of 16 × 8, two neighbours of a column in each word
//
// Which lane holds what: with g = lane / 4 and p = 2·(lane % 4),
//   a[0 … 3]   rows g, g + 8, g, g + 8; columns p and p + 1 for a[0], a[1], p + 8 and p + 9 after
//   b[0 … 1]   column g; rows p and p + 1, p + 8 and p + 9
//   d[0 … 3]   row g, columns p and p + 1; row g + 8, columns p and p + 1
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <concepts>
#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

// What the tensor cores multiply.
template <class T>
concept matrix_element = std::same_as<T, __nv_bfloat16> || std::same_as<T, __half>;

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/mma.hpp"
#else
#include "kittens/arch/ptx/mma.cuh"
#endif
