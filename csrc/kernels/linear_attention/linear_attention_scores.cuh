// linear attention: from a warp's scores to what it weights values by.
// (linear_attention_chunkwise.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_decays.cuh"
#include "kernels/linear_attention/linear_attention_tile.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// The scores, times the decays from the earlier token to the later; 0 where the column comes later
// than the row. Sixteen columns at a time: registers are few.
template <class Config>
KITTENS_DEVICE rt<typename Config::type, 16, kChunk> weights_of(
    const rt_fl<16, kChunk>& s, const decays_of_tokens<kChunk>& decays, bool by_factors) {
  using T = typename Config::type;
  using part = rt_fl<16, 16>;
  const int lane = arch::lane_id(), warp = arch::warp_id() % 4;
  rt<T, 16, kChunk> weights;
  const auto weigh = [&](auto by_factors) {
    part::col_vec of_rows;
    if (!by_factors) load(of_rows, decays.sixteen(decays.log_from_end, warp));
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      part scores;
#pragma unroll
      for (int j = 0; j < 8; ++j) scores.data[0][j] = s.data[0][8 * i + j];
      part::row_vec of_columns;
      if (by_factors) {
        load(of_columns, decays.sixteen(decays.to_end, i));
        mul_col(scores, scores, of_columns);
      } else {
        load(of_columns, decays.sixteen(decays.log_to_end, i));
        part factors;
        broadcast_col(factors, of_columns);
        add_row(factors, factors, of_rows);
        exp2(factors, factors);  // of what comes later infinity, maybe, but hidden below
        mul(scores, scores, factors);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        weights.data[0][4 * i + j] = pack<T>(scores.data[0][2 * j], scores.data[0][2 * j + 1]);
      }
    }
  };
  by_factors ? weigh(std::true_type{}) : weigh(std::false_type{});
  // Zeros in place of what comes later: two elements of a word at a time, which takes half of what
  // `tril` does.
  const int row = lane / 4, column = lane % 4 * 2;
  const bool first = Config::reverse ? column >= row : column <= row;
  const bool second = Config::reverse ? column + 1 >= row : column + 1 <= row;
  const uint32_t diagonal = (first ? 0x0000ffffu : 0u) | (second ? 0xffff0000u : 0u);
#pragma unroll
  for (int i = 0; i < kChunk / 16; ++i) {
    const uint32_t earlier = (Config::reverse ? i > warp : i < warp) ? ~0u : 0u;
    const uint32_t own = i == warp ? ~0u : 0u;
    // 8 × 8 quarters of 16 × 16: above left, below left, above right, below right.
    const uint32_t on_diagonal = earlier | (own & diagonal);
    const uint32_t below = Config::reverse ? earlier : earlier | own;
    const uint32_t above = Config::reverse ? earlier | own : earlier;
    const uint32_t kept[4] = {on_diagonal, below, above, on_diagonal};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      weights.data[0][4 * i + j] &= kept[j];
    }
  }
  return weights;
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
