// attention: how a configuration of the backward's kernel for Hopper is launched.
#pragma once

#include <algorithm>

#include "kernels/attention/attention_backward.cuh"
#include "kernels/attention/attention_backward_rows_launch.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config>
attention_backward_arguments<Config> main_arguments(const attention_backward_params& p,
                                                    const attention_backward_layout& layout) {
  using T = typename Config::type;
  const int64_t D = p.head_dim, Dv = p.value_dim;
  const auto set = [&]<class Tile>(tma_sequence_map<Tile>& map, const void* data, int64_t length,
                                   int64_t heads, int64_t width, const attention_strides& strides) {
    const gl<T> view = attention_view<T>(data, p.batch, length, heads, width, strides);
    map =
        layout.packed ? tma_sequence_map<Tile>::of_packed(view) : tma_sequence_map<Tile>::of(view);
  };
  attention_backward_arguments<Config> t{};
  set_call<Config>(t, p, layout);
  set(t.q, p.q, p.rows, p.heads, D, p.q_strides);
  set(t.d_o, p.d_o, p.rows, p.heads, Dv, p.do_strides);
  using key_tile = typename Config::key_tile;
  int keys = 0;  // from a batch's first key to the next one's: all of them
  t.k = key_map<key_tile>(p, layout.packed, p.k, D, p.k_strides, t.k_step);
  t.v = key_map<key_tile>(p, layout.packed, p.v, Dv, p.v_strides, t.v_step);
  t.dk = key_map<key_tile>(p, layout.packed, p.dk, D, p.dk_strides, keys);
  t.dv = key_map<key_tile>(p, layout.packed, p.dv, Dv, p.dv_strides, keys);
  t.flat_keys = layout.packed || p.seqused_k != nullptr || p.leftpad_k != nullptr;
  return t;
}

template <class Config>
void launch_attention_backward(const attention_backward_params& p,
                               const attention_backward_layout& layout, host::stream s) {
  launch_around<typename Config::rows_config>(p, layout, s, [&] {
    const auto t = main_arguments<Config>(p, layout);
    host::launch_programmatic(attention_backward<Config>,
                              {{std::min<int64_t>(t.tiles.count(), host::multiprocessors())},
                               {Config::threads},
                               sizeof(attention_backward_shared<Config>)},
                              s, t);
  });
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
