// ldmatrix, stmatrix and movmatrix: 8 × 8 matrices of 16-bit elements between shared memory and the
// registers of a warp, and among those. All lanes call, from the same place.
//
//   load_matrix<Transposed, Count>(d, row)    Count = 1, 2 or 4 matrices; d is uint32_t[Count]
//   store_matrix<Transposed, Count>(row, s)   sm_90 and the simulator: where kHasStoreMatrix
//   uint32_t transpose_matrix(word)           the transpose of the matrix that the lanes hold
//
// `row` is the row of 16 bytes that this lane points at, aligned to 16: lane 8·i + r at row r of
// matrix i. (Of lanes 8·Count and above it is not used.) Word i of lane l holds the elements
// (l / 4, 2·(l % 4)) and the one after it of matrix i; of its transpose, if Transposed.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/shared.cuh"

namespace kittens::arch {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasStoreMatrix = false;
#else
inline constexpr bool kHasStoreMatrix = true;
#endif

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/matrix.hpp"
#else
#include "kittens/arch/ptx/matrix.cuh"
#endif
