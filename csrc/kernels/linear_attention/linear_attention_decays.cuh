// linear attention: the decays within a chunk. (linear_attention_chunkwise.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_tile.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// The decays within a chunk. At token i of the chunk, L(i) is log₂ of their product up to i; a
// token past the sequence's end does not decay. Two ways lead from the score of row i and column j
// to its weight, with E the chunk's end in the order of the recurrence and its decay, e:
//
//   by factors   2^(L(E) − L(j)) of column j, and at last 2^(L(i) − L(E)) of row i
//   or exactly   2^(L(i) − L(j)) of each pair
//
// The first takes an exponential a token in place of one a pair, and is as exact where both factors
// are far from the ends of T's range: e at least 2^−32, and T as wide as float.
template <class Config>
class chunk_decays {
 public:
  using T = typename Config::type;
  using scores = rt_fl<16, kChunk>;
  using of_rows = scores::col_vec;
  using of_columns = scores::row_vec;

  of_rows since_state;  // log₂ of the decay from the state before the chunk to this warp's tokens
  float total;          // log₂ of the chunk's
  bool by_factors;

  // Two tokens' decays of each lane, log₂, and their weights, as they are loaded, a chunk ahead.
  struct loaded {
    float x = 0, y = 0;
    float weight_x = 1, weight_y = 1;
  };
  KITTENS_DEVICE static loaded load(const chunkwise_arguments& p, const chunk_stream& s,
                                    int first_token) {
    loaded g;
    const int token = first_token + 2 * arch::lane_id();
    const auto load_two = [&](const float* from, const linear_attention_strides& strides, float& x,
                              float& y) {
      const float* const at = s.of_token(from, strides, token);
      if (token < s.length) x = arch::load_global(at);
      if (token + 1 < s.length) y = arch::load_global(at + strides.token);
    };
    if (p.log_decay != nullptr) {
      load_two(p.log_decay, p.decay_strides, g.x, g.y);
      g.x *= kLog2e;
      g.y *= kLog2e;
    }
    if (kHasWeights && p.k_weights != nullptr) {
      load_two(p.k_weights, p.weight_strides, g.weight_x, g.weight_y);
    }
    return g;
  }

  // By one warp, through memory of its own.
  KITTENS_DEVICE chunk_decays(const loaded& g, decays_of_columns& memory) : memory(memory) {
    set(g);
  }
  KITTENS_DEVICE void set(const loaded& g) {
    const int lane = arch::lane_id();
    float sum = g.x + g.y;  // of this lane's tokens and those before
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
      const float before = arch::shuffle_up(sum, delta);
      if (lane >= delta) sum += before;
    }
    total = arch::shuffle(sum, 31);
    by_factors = takes_factors<T>(total);
    const float x = sum - g.y, y = sum;  // L of this lane's tokens
    const int row = arch::warp_id() % 4 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int from = row / 2 + half * 4;
      const float even = arch::shuffle(x, from), odd = arch::shuffle(y, from);
      const float to_row = row % 2 == 0 ? even : odd;
      since_state.data[half].set({Config::reverse ? total - to_row : to_row});
    }
    arch::sync_warp();  // all lanes have read the chunk before
    const auto leave = [&](int token, float to_token, float weight) {
      float to_end = Config::reverse ? to_token : total - to_token;
      memory.to_end.data[token] = arch::exp2_approx(to_end) * weight;
      if (kHasWeights) to_end += arch::log2_approx(weight);
      memory.log_to_end.data[token] = to_end;
    };
    leave(2 * lane, x, g.weight_x);
    leave(2 * lane + 1, y, g.weight_y);
    arch::sync_warp();
  }

  // The decay from each token to the chunk's end, times its weight.
  KITTENS_DEVICE of_columns to_end() const {
    of_columns columns;
    kittens::load(columns, memory.to_end);
    return columns;
  }

  // What the state's part of o is multiplied by, and o at last.
  KITTENS_DEVICE of_rows before_scores() const {
    of_rows rows = since_state;
    if (by_factors) fill(rows, total);
    exp2(rows, rows);
    return rows;
  }
  KITTENS_DEVICE of_rows after_scores() const {
    of_rows rows;
    zero(rows);
    if (by_factors) add(rows, since_state, -total);
    exp2(rows, rows);
    return rows;
  }

  // Of the scores, times the decays from the earlier token to the later; 0 where the column comes
  // later than the row in the recurrence.
  KITTENS_DEVICE rt<T, 16, kChunk> weights_of(scores& s) const {
    if (by_factors) {
      mul_col(s, s, to_end());
    } else {
      of_columns columns;
      kittens::load(columns, memory.log_to_end);
      of_rows rows;  // to the chunk's end
      sub(rows, since_state, total);
      scores d;
      broadcast_col(d, columns);
      add_row(d, d, rows);
      exp2(d, d);  // of what comes later infinity, maybe, but hidden below
      mul(s, s, d);
    }
    rt<T, 16, kChunk> weights;
    copy(weights, s);
    hide_later(weights);
    return weights;
  }

 private:
  static constexpr bool kHasWeights = Config::weighted && !Config::reverse;
  decays_of_columns& memory;

  // Zeros in place of columns that come later than the row: two elements of a word at a time, which
  // takes half of what `tril` does.
  KITTENS_DEVICE static void hide_later(rt<T, 16, kChunk>& weights) {
    const int lane = arch::lane_id(), warp = arch::warp_id() % 4;
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
      uint32_t* const words = &weights.data[0][4 * i];
      words[0] &= on_diagonal;
      words[1] &= below;
      words[2] &= above;
      words[3] &= on_diagonal;
    }
  }
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
