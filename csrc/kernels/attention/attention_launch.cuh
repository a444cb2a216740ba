// attention: how a configuration of the forward kernel is launched.
#pragma once

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_forward.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// The dynamic scheduler takes the longest tiles first, those of several heads together: as many as
// have keys and values of this many bytes, which stay in the L2 cache.
inline constexpr int64_t kCacheBytes = int64_t{32} << 20;

inline int64_t heads_together(const attention_forward_params& p) {
  if (p.tile_counter == nullptr) return 1;
  const int64_t group = p.heads / p.key_heads;
  const int64_t head_bytes = p.keys * (p.head_dim + p.value_dim) * host::bytes_of(p.type);
  return std::clamp<int64_t>(kCacheBytes * group / head_bytes, 1, p.heads * p.batch);
}

// [batch, length, heads, width] as the tile layer counts it: [batch, depth = heads, rows, cols].
template <class T>
gl<T> attention_view(const void* data, int64_t batch, int64_t length, int64_t heads, int64_t width,
                     const attention_strides& strides) {
  return {static_cast<T*>(const_cast<void*>(data)),
          batch,
          heads,
          length,
          width,
          strides.batch,
          strides.head,
          strides.row};
}

// How TMA finds keys or values, [batch, keys, heads, width]; `step`: see attention_flat_rows.
template <class Map, class P>
Map key_map(const P& p, bool packed, const void* data, int64_t width,
            const attention_strides& strides, int& step) {
  using T = typename Map::tile::dtype;
  if (p.seqused_k == nullptr && p.leftpad_k == nullptr) {
    const gl<T> view = attention_view<T>(data, p.batch, p.keys, p.key_heads, width, strides);
    return packed ? Map::of_packed(view) : Map::of(view);
  }
  const auto flat = attention_flat_rows::of(p.batch, p.keys, p.key_heads * width, strides);
  step = static_cast<int>(flat.step);
  return Map::of_packed(
      attention_view<T>(data, 1, flat.count, p.key_heads, width, {0, flat.stride, strides.head}));
}

template <class P>
attention_key_ranges key_ranges_of(const P& p) {
  return {{p.seqused_k, p.int64_seqused_k}, {p.leftpad_k, p.int64_leftpad_k}};
}

// What every kernel is told of a call, whose tiles have `rows` rows. Returns how many tiles there
// are.
inline int64_t set_arguments(attention_arguments& t, const attention_forward_params& p, int rows) {
  const bool packed = p.cu_seqlens_q != nullptr;
  // Of packed sequences, each but one has a tile at most that is not full.
  const int64_t row_tiles = (p.rows + rows - 1) / rows + (packed ? p.sequences + 1 : 0);
  const int64_t tiles = row_tiles * p.heads * p.batch;
  if (tiles > std::numeric_limits<int>::max()) {
    throw host::error("attention_forward: at most 2147483647 tiles of " + std::to_string(rows) +
                      " rows, got " + std::to_string(tiles));
  }
  t.lse = {p.lse, p.batch, p.heads, 1, p.rows, p.heads * p.rows, p.rows, p.rows};
  t.sinks = p.sinks;
  const bool differ = p.left < p.keys || p.right < p.rows;  // in length, under a mask
  t.tiles = {int(row_tiles),         int(p.heads),
             int(p.batch),           p.tile_counter != nullptr && differ,
             int(heads_together(p)), p.tile_counter};
  t.rows = int(p.rows);
  t.keys = int(p.keys);
  t.q_ends = {p.cu_seqlens_q, p.int64_seqlens_q};
  t.k_ends = {p.cu_seqlens_k, p.int64_seqlens_k};
  t.sequences = packed ? int(p.sequences) : kNotPacked;
  t.left = int(std::min(p.left, p.keys));
  t.right = int(std::min(p.right, p.rows));
  t.heads_per_key = int(p.heads / p.key_heads);
  t.softcap = attention_softcap::of(p.scale, p.softcap);
  t.scale = p.softcap > 0 ? p.softcap : p.scale;
  t.scale_log2 = t.scale * kLog2e;
  t.key_ranges = key_ranges_of(p);
  return tiles;
}

// o lies without gaps.
inline attention_strides output_strides(const attention_forward_params& p) {
  return {p.rows * p.heads * p.value_dim, p.heads * p.value_dim, p.value_dim};
}

template <class Config>
void launch_attention_forward(const attention_forward_params& p, host::stream s) {
  using T = typename Config::type;
  const int64_t D = p.head_dim, Dv = p.value_dim;
  const attention_strides o_strides = output_strides(p);
  const bool packed = p.cu_seqlens_q != nullptr;
  attention_forward_arguments<Config> t{};
  const int64_t tiles = set_arguments(t, p, Config::rows);
  const auto set = [&]<class Tile>(tma_sequence_map<Tile>& map, const void* data, int64_t length,
                                   int64_t heads, int64_t width, const attention_strides& strides) {
    const gl<T> view = attention_view<T>(data, p.batch, length, heads, width, strides);
    map = packed ? tma_sequence_map<Tile>::of_packed(view) : tma_sequence_map<Tile>::of(view);
  };
  set(t.q, p.q, p.rows, p.heads, D, p.q_strides);
  t.k = key_map<decltype(t.k)>(p, packed, p.k, D, p.k_strides, t.k_step);
  t.v = key_map<decltype(t.v)>(p, packed, p.v, Dv, p.v_strides, t.v_step);
  set(t.o, p.o, p.rows, p.heads, Dv, o_strides);
  t.o_rows = attention_view<T>(p.o, p.batch, p.rows, p.heads, Dv, o_strides);
  t.flat_keys = packed || p.seqused_k != nullptr || p.leftpad_k != nullptr;
  const int64_t blocks = std::min<int64_t>(tiles, host::multiprocessors());
  host::launch(attention_forward<Config>,
               {{blocks}, {Config::threads}, sizeof(attention_forward_shared<Config>)}, s, t);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
