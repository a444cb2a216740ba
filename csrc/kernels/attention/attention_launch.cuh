// attention: how a configuration of the forward kernel is launched.
#pragma once

#include <algorithm>
#include <limits>
#include <numbers>
#include <string>

#include "kernels/attention/attention_forward.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

// Causal tiles differ in length. The hardware hands out the longest of so many heads, then their
// next ones: short tiles then fill the end of the grid, and those heads' keys and values stay in
// the L2 cache (S = 2048, D = 128: 467 TFLOP/s with 1, 484 with 8).
inline constexpr int kHeadsTogether = 8;

// [batch, length, heads, width] as the tile layer counts it: [batch, depth = heads, rows, cols].
template <class T>
gl<const T> attention_view(const void* data, int64_t batch, int64_t length, int64_t heads,
                           int64_t width, const attention_strides& strides) {
  return {static_cast<const T*>(data),
          batch,
          heads,
          length,
          width,
          strides.batch,
          strides.head,
          strides.row};
}

template <class Config>
void launch_attention_forward(const attention_forward_params& p, host::stream s) {
  using T = typename Config::type;
  const int64_t D = Config::head_dim;
  const attention_strides o_strides{p.rows * p.heads * D, p.heads * D, D};
  const int64_t row_tiles = (p.rows + Config::rows - 1) / Config::rows;
  const int64_t tiles = row_tiles * p.heads * p.batch;
  if (tiles > std::numeric_limits<int>::max()) {
    throw host::error("attention_forward: at most 2147483647 tiles of " +
                      std::to_string(Config::rows) + " rows, got " + std::to_string(tiles));
  }
  attention_forward_tensors<Config> t{};
  t.q = decltype(t.q)::of(attention_view<T>(p.q, p.batch, p.rows, p.heads, D, p.q_strides));
  if (p.keys > 0) {  // else no tile reads them
    t.k = decltype(t.k)::of(attention_view<T>(p.k, p.batch, p.keys, p.key_heads, D, p.k_strides));
    t.v = decltype(t.v)::of(attention_view<T>(p.v, p.batch, p.keys, p.key_heads, D, p.v_strides));
  }
  t.o = decltype(t.o)::of(attention_view<T>(p.o, p.batch, p.rows, p.heads, D, o_strides));
  t.lse = {p.lse, p.batch, p.heads, 1, p.rows, p.heads * p.rows, p.rows, p.rows};
  t.tiles = {int(row_tiles), int(p.heads), int(p.batch), Config::causal,
             Config::causal ? kHeadsTogether : 1};
  t.rows = int(p.rows);
  t.keys = int(p.keys);
  t.heads_per_key = int(p.heads / p.key_heads);
  t.scale = p.scale;
  t.scale_log2 = p.scale * std::numbers::log2e_v<float>;
  const int64_t blocks = Config::causal ? tiles : std::min<int64_t>(tiles, host::multiprocessors());
  host::launch(attention_forward<Config>,
               {{blocks}, {Config::threads}, sizeof(attention_forward_shared<Config>)}, s, t);
}

}  // namespace thunderkittens::inline KITTENS_TARGET
