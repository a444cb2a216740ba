// attention, backward: how a configuration is launched.
#pragma once

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_backward.cuh"
#include "kernels/attention/attention_launch.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

struct attention_backward_params {
  const void *q, *k, *v, *o, *d_o;
  void *dq, *dk, *dv;
  const float *lse, *dlse;
  void *row_blocks, *parts, *bounds;
  float* dq_factors;
  int* tile_counter;
  int64_t batch, rows, keys, heads, key_heads, head_dim, value_dim;
  attention_strides q_strides, k_strides, v_strides, o_strides, do_strides;
  float scale, softcap;
  int64_t left, right;
  dtype type;
};

template <class Config>
void launch_attention_backward(const attention_backward_params& p, host::stream s) {
  using T = typename Config::type;
  const int64_t D = p.head_dim, Dv = p.value_dim;
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t row_blocks = ceil_div(p.rows, Config::rows),
                key_blocks = ceil_div(p.keys, Config::keys);
  const auto rows_of = [](const void* data, const attention_strides& of) {
    return head_rows<T>{static_cast<const T*>(data), of.batch, of.row, of.head};
  };
  attention_rows_arguments<T> r{};
  r.o = rows_of(p.o, p.o_strides);
  r.d_o = rows_of(p.d_o, p.do_strides);
  r.k = rows_of(p.k, p.k_strides);
  r.v = rows_of(p.v, p.v_strides);
  r.dq = static_cast<T*>(p.dq);
  r.lse = p.lse;
  r.dlse = p.dlse;
  r.row_blocks = p.row_blocks;
  r.parts = static_cast<attention_dq_part*>(p.parts);
  r.bounds = static_cast<attention_key_bounds*>(p.bounds);
  r.dq_factors = p.dq_factors;
  r.rows = int(p.rows);
  r.keys = int(p.keys);
  r.heads = int(p.heads);
  r.heads_per_key = int(p.heads / p.key_heads);
  r.head_dim = int(D);
  r.value_dim = int(Dv);
  r.row_blocks_of_head = int(row_blocks);
  r.scale = p.scale;
  host::launch(attention_backward_bounds<T>, {{key_blocks, p.key_heads, p.batch}, {kRowThreads}}, s,
               r);
  host::launch(attention_backward_prepare<Config>, {{row_blocks, p.heads, p.batch}, {kRowThreads}},
               s, r);

  attention_backward_arguments<Config> t{};
  const auto set = [&]<class Tile>(tma_sequence_map<Tile>& map, const void* data, int64_t length,
                                   int64_t heads, int64_t width, const attention_strides& strides) {
    map =
        tma_sequence_map<Tile>::of(attention_view<T>(data, p.batch, length, heads, width, strides));
  };
  const attention_strides dk_strides{p.keys * p.key_heads * D, p.key_heads * D, D};
  const attention_strides dv_strides{p.keys * p.key_heads * Dv, p.key_heads * Dv, Dv};
  set(t.q, p.q, p.rows, p.heads, D, p.q_strides);
  set(t.d_o, p.d_o, p.rows, p.heads, Dv, p.do_strides);
  set(t.k, p.k, p.keys, p.key_heads, D, p.k_strides);
  set(t.v, p.v, p.keys, p.key_heads, Dv, p.v_strides);
  set(t.dk, p.dk, p.keys, p.key_heads, D, dk_strides);
  set(t.dv, p.dv, p.keys, p.key_heads, Dv, dv_strides);
  t.row_blocks = static_cast<const attention_row_block<Config::rows>*>(p.row_blocks);
  t.dq = static_cast<attention_dq_part*>(p.parts);
  t.dq_factors = p.dq_factors;
  t.tiles = {int(key_blocks),
             int(p.key_heads),
             int(p.batch),
             false,
             p.tile_counter != nullptr ? int(std::min<int64_t>(8, p.key_heads * p.batch)) : 1,
             p.tile_counter};
  t.sequences = {int(p.rows), int(p.keys), int(std::min(p.right, p.rows)), nullptr, nullptr, 1};
  t.row_blocks_of_head = int(row_blocks);
  t.heads = int(p.heads);
  t.heads_per_key = int(p.heads / p.key_heads);
  t.left = int(std::min(p.left, p.keys));
  t.right = int(std::min(p.right, p.rows));
  t.softcap = attention_softcap::of(p.scale, p.softcap);
  t.scale_log2 = (p.softcap > 0 ? p.softcap : p.scale) * kLog2e;
  t.dk_scale = p.scale;
  const int64_t tiles = key_blocks * p.key_heads * p.batch;
  host::launch(attention_backward<Config>,
               {{std::min<int64_t>(tiles, host::multiprocessors())},
                {Config::threads},
                sizeof(attention_backward_shared<Config>)},
               s, t);
  host::launch(attention_backward_finish<Config>,
               {{row_blocks, p.heads, p.batch}, {128 * Config::parts}}, s, r);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
