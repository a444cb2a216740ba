// hedgehog attention on every architecture: a pass of the backward, its shared memory and tensors.
// (hedgehog_attention_generic_gradient.cuh)
#pragma once

#include <type_traits>

#include "kernels/hedgehog_attention/hedgehog_attention_generic_tile.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_gradient_tile.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// As Hopper's, of the same passes.
template <class T, int Pass>
struct hedgehog_generic_gradient_config : hedgehog_gradient_config<T, Pass> {
  static constexpr bool generic = true;
};

template <class T>
struct hedgehog_generic_gradient_arguments : gradient_arguments {
  token_rows<T> rows, row_values, window, window_values;
  const T* map;                        // [H, 128, 64], of the rows
  T* states;                           // [B · H, blocks · features, values]
  T *row_gradients, *value_gradients;  // [B, S, H, 128]; null: not wanted
};

template <class Config>
struct generic_state_pass_shared {
  typename Config::token_tile rows, row_values;
  typename Config::map_tile map;
  typename Config::square features[2];
  sv<float, kHalf> of_columns[2][4];
};
// All of the 99 KiB that some architectures have. What `window` and `others` hold changes while a
// block is worked on; squares are half a tile.
template <class Config>
struct generic_gradient_pass_shared {
  typename Config::token_tile rows, row_values, window[2], others[2];
  union {
    sv<float, kBlock> of_rows[2][6];    // of each warpgroup; and when all have read them
    sv<float, kHalf> of_columns[2][4];  // of its warps
  };
};
template <class Config>
using hedgehog_generic_gradient_shared =
    std::conditional_t<Config::is_states, generic_state_pass_shared<Config>,
                       generic_gradient_pass_shared<Config>>;

// Of either kernel.
template <class Config>
using gradient_arguments_of =
    std::conditional_t<Config::generic, hedgehog_generic_gradient_arguments<typename Config::type>,
                       hedgehog_gradient_arguments<Config>>;
template <class Config>
using gradient_shared_of =
    std::conditional_t<Config::generic, hedgehog_generic_gradient_shared<Config>,
                       hedgehog_attention_gradient_shared<Config>>;

// ---- Products of tiles in shared memory: this warp's 16 rows of them
// ------------------------------

template <bool Transposed, class Tile>
KITTENS_DEVICE auto left_side(const Tile& tile) {
  constexpr int kDepth = Transposed ? Tile::rows : Tile::cols;
  const int row = arch::warp_id() % 4 * 16;
  rt<typename Tile::dtype, 16, kDepth> left;
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    load_left<Transposed>(left.data[0] + 4 * k, tile, Transposed ? 16 * k : row,
                          Transposed ? row : 16 * k);
  }
  return left;
}
// d += a b
template <class D, class A, class B>
KITTENS_DEVICE void add_AB(D& d, const A& a, const B& b) {
  mma_AB(d, left_side<false>(a), b, d);
}
// d += a bᵀ
template <class D, class A, class B>
KITTENS_DEVICE void add_ABt(D& d, const A& a, const B& b) {
  mma_ABt(d, left_side<false>(a), b, d);
}
// d += aᵀ b
template <class D, class A, class B>
KITTENS_DEVICE void add_AtB(D& d, const A& a, const B& b) {
  mma_AB(d, left_side<true>(a), b, d);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
