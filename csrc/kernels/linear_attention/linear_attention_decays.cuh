// linear attention: the decays within a chunk. (linear_attention_chunkwise.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_tile.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// log₂ of the decays within a chunk. At token i of the chunk, L(i) is the sum over its tokens up to
// i; a token past the sequence's end does not decay.
class chunk_decays {
 public:
  using scores = rt_fl<16, kChunk>;
  using of_rows = scores::col_vec;
  using of_columns = scores::row_vec;

  of_rows rows;        // L of this warp's tokens
  of_columns columns;  // L of all, less log₂ of their weights
  float total;         // L of the last one

  // Two tokens' decays of each lane, and log₂ of their weights, as they are loaded, a chunk ahead.
  struct loaded {
    float x = 0, y = 0;
    float weight_x = 0, weight_y = 0;
  };
  template <class Config>
  KITTENS_DEVICE static loaded load(const linear_attention_arguments<Config>& p,
                                    const chunk_stream& s, int first_token) {
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
    if (Config::weighted && !Config::reverse && p.k_weights != nullptr) {
      float x = 1, y = 1;
      load_two(p.k_weights, p.weight_strides, x, y);
      g.weight_x = arch::log2_approx(x);
      g.weight_y = arch::log2_approx(y);
    }
    return g;
  }

  // By one warp, through memory of its own.
  template <class Config>
  KITTENS_DEVICE static chunk_decays of(const linear_attention_arguments<Config>& p, loaded g,
                                        sv<float, kChunk>& memory) {
    const int lane = arch::lane_id();
    float sum = g.x + g.y;  // of this lane's tokens and those before
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
      const float before = arch::shuffle_up(sum, delta);
      if (lane >= delta) sum += before;
    }
    arch::sync_warp();  // all lanes have read the chunk before
    memory.data[2 * lane] = sum - g.y;
    memory.data[2 * lane + 1] = sum;
    arch::sync_warp();
    chunk_decays d;
    const int row = arch::warp_id() % 4 * 16 + lane / 4;
    d.rows.data[0].set({memory.data[row]});
    d.rows.data[1].set({memory.data[row + 8]});
    d.total = memory.data[kChunk - 1];
    if (Config::weighted && !Config::reverse && p.k_weights != nullptr) {
      arch::sync_warp();
      memory.data[2 * lane] -= g.weight_x;
      memory.data[2 * lane + 1] -= g.weight_y;
      arch::sync_warp();
    }
    kittens::load(d.columns, memory);
    return d;
  }
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
