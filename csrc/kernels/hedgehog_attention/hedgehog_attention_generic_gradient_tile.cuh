// hedgehog attention on every architecture: a pass of the backward, its shared memory and tensors.
// (hedgehog_attention_generic_gradient.cuh)
#pragma once

#include <type_traits>

#include "kernels/hedgehog_attention/hedgehog_attention_generic_tile.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_gradient_tile.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// As Hopper's, of the same passes.
template <class T, int Pass>
struct hedgehog_generic_gradient_config : hedgehog_pass_config<T, Pass> {
  static constexpr bool generic = true;
  static constexpr int threads = kThreads;
  static constexpr int blocks_per_multiprocessor = 1;
};

template <class T>
struct hedgehog_generic_gradient_arguments : gradient_arguments {
  token_rows<T> rows, row_values, window, window_values;
  const T* map;                        // [H, head_dim, 64], of the rows
  T* states;                           // [B · H, blocks · features, values]
  T *row_gradients, *value_gradients;  // [B, S, H, columns]; null: not wanted
};

// Where a head's first row is in each tensor. In shared memory, for in registers they are more than
// there is room for.
template <class T>
struct places_of_run {
  const T *rows, *row_values, *window, *window_values, *map;
  T *states, *row_gradients, *value_gradients;  // null: not wanted

  KITTENS_DEVICE void set(const hedgehog_generic_gradient_arguments<T>& p, const block_run& run) {
    const auto placed = [&](const token_rows<T>& of) {
      return of.data + run.batch * of.strides.batch + run.head * of.strides.head;
    };
    const auto result = [&](T* data, int columns) {
      const int64_t first = int64_t{run.batch} * p.length * p.heads + run.head;
      return data == nullptr ? nullptr : data + first * columns;
    };
    rows = placed(p.rows);
    row_values = placed(p.row_values);
    window = placed(p.window);
    window_values = placed(p.window_values);
    map = p.map + int64_t{run.head} * p.head_dim * kHalf;
    states = p.states + (int64_t{run.batch} * p.heads + run.head) * p.blocks * kWidth * kWidth;
    row_gradients = result(p.row_gradients, p.head_dim);
    value_gradients = result(p.value_gradients, p.value_dim);
  }
};

template <class Config>
struct generic_state_pass_shared {
  static constexpr int kRowValues = 0;
  typename Config::token_tile rows, row_values;
  typename Config::map_tile map;
  typename Config::square features[2];
  sv<float, kHalf> of_columns[2][4];
  block_run run;
  places_of_run<typename Config::type> places;
};
// Of the 99 KiB that some architectures have, 98.6. What `window` and `others` hold changes while a
// block is worked on; squares are half a tile.
template <class Config>
struct generic_gradient_pass_shared {
  static constexpr int kRowValues = 5;
  typename Config::token_tile rows, row_values, window[2], others[2];
  union {
    sv<float, kBlock> of_rows[2][kRowValues];  // of each warpgroup; and when all have read them
    sv<float, kHalf> of_columns[2][4];         // of its warps
  };
  block_run run;
  places_of_run<typename Config::type> places;
};
template <class Config>
using hedgehog_attention_generic_gradient_shared =
    std::conditional_t<Config::is_states, generic_state_pass_shared<Config>,
                       generic_gradient_pass_shared<Config>>;

// Of either kernel.
template <class Config>
using gradient_arguments_of =
    std::conditional_t<Config::generic, hedgehog_generic_gradient_arguments<typename Config::type>,
                       hedgehog_gradient_arguments<Config>>;
template <class Config>
using gradient_shared_of =
    std::conditional_t<Config::generic, hedgehog_attention_generic_gradient_shared<Config>,
                       hedgehog_attention_gradient_shared<Config>>;

// ---- Products of tiles in shared memory: this warp's 16 rows of them ----------------------------

// d += a b, aᵀ b or a bᵀ. Of both sides only what is being multiplied is in registers.
template <bool ATransposed, bool BTransposed, class D, class A, class B>
KITTENS_DEVICE void add_product(D& d, const A& a, const B& b) {
  using T = typename A::dtype;
  using order = std::conditional_t<BTransposed, ducks::rt_layout::col, ducks::rt_layout::row>;
  constexpr int kDepth = ATransposed ? A::rows : A::cols;
  static_assert(kDepth == (BTransposed ? B::cols : B::rows), "the inner extents are equal");
  const int row = arch::warp_id() % 4 * 16;
  const int first = detail::matrix_row<rt<T, 16, 16, order>, B>(arch::lane_id());
#pragma unroll 2  // more at a time would be loaded into more registers than there are
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t left[4];
    load_left<ATransposed>(left, a, ATransposed ? k : row, ATransposed ? row : k);
#pragma unroll
    for (int n = 0; n < D::line_tiles; ++n) {
      uint32_t right[4];
      const int of_k = BTransposed ? 16 * n : k, of_n = BTransposed ? k : 16 * n;
      arch::load_matrix<!BTransposed>(right, &b.data[detail::moved_index<B>(first, of_k, of_n)]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sums[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] = d.data[0][8 * n + 4 * half + i];
        arch::mma_m16n8k16<T>(sums, left, {right[2 * half], right[2 * half + 1]}, sums);
#pragma unroll
        for (int i = 0; i < 4; ++i) d.data[0][8 * n + 4 * half + i] = sums[i];
      }
    }
  }
}
template <class D, class A, class B>
KITTENS_DEVICE void add_AB(D& d, const A& a, const B& b) {
  add_product<false, false>(d, a, b);
}
template <class D, class A, class B>
KITTENS_DEVICE void add_ABt(D& d, const A& a, const B& b) {
  add_product<false, true>(d, a, b);
}
template <class D, class A, class B>
KITTENS_DEVICE void add_AtB(D& d, const A& a, const B& b) {
  add_product<true, false>(d, a, b);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
