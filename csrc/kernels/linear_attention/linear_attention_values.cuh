// linear attention: a warp's 16 columns of v, as the left side of a product.
// (linear_attention_chunkwise.cuh, linear_attention_generic.cuh)
#pragma once

#include <kittens.cuh>

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// Columns `first` … of a tile of tokens, transposed: [values, tokens].
template <class T, class Tile>
KITTENS_DEVICE void load_values(kittens::rt<T, 16, Tile::rows>& values, const Tile& tile,
                                int first) {
  namespace arch = kittens::arch;
  const int lane = arch::lane_id();
  const int column = first + lane / 8 % 2 * 8;
  const T* const row = &tile(lane / 16 * 8 + lane % 8, column);  // the swizzle repeats after 8
#pragma unroll
  for (int i = 0; i < Tile::rows / 16; ++i) {
    uint32_t words[4];
    arch::load_matrix<true>(words, row + i * 16 * Tile::chunk_cols);
#pragma unroll
    for (int j = 0; j < 4; ++j) values.data[0][4 * i + j] = words[j];
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
