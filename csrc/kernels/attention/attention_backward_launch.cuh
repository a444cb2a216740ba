// attention: how a configuration of the backward's kernel for Hopper is launched.
#pragma once

#include <algorithm>

#include "kernels/attention/attention_backward.cuh"
#include "kernels/attention/attention_backward_dq.cuh"
#include "kernels/attention/attention_backward_rows_launch.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// How TMA finds q, do or dq, [batch, rows, heads, width].
template <class Map>
Map row_map(const attention_backward_params& p, bool packed, const void* data, int64_t width,
            const attention_strides& strides) {
  using T = typename Map::tile::dtype;
  const gl<T> view = attention_view<T>(data, p.batch, p.rows, p.heads, width, strides);
  return packed ? Map::of_packed(view) : Map::of(view);
}

template <class Config>
void set_operands(attention_backward_operands<Config>& t, const attention_backward_params& p,
                  const attention_backward_layout& layout) {
  const int64_t D = p.head_dim, Dv = p.value_dim;
  set_call<Config>(t, p, layout);
  t.q = row_map<decltype(t.q)>(p, layout.packed, p.q, D, p.q_strides);
  t.d_o = row_map<decltype(t.d_o)>(p, layout.packed, p.d_o, Dv, p.do_strides);
  t.k = key_map<decltype(t.k)>(p, layout.packed, p.k, D, p.k_strides, t.k_step);
  t.v = key_map<decltype(t.v)>(p, layout.packed, p.v, Dv, p.v_strides, t.v_step);
  t.flat_keys = layout.packed || p.seqused_k != nullptr || p.leftpad_k != nullptr;
}

template <class Config>
attention_backward_arguments<Config> main_arguments(const attention_backward_params& p,
                                                    const attention_backward_layout& layout) {
  int keys = 0;  // from a batch's first key to the next one's: all of them
  attention_backward_arguments<Config> t{};
  set_operands(t, p, layout);
  t.dk = key_map<decltype(t.dk)>(p, layout.packed, p.dk, p.head_dim, p.dk_strides, keys);
  t.dv = key_map<decltype(t.dv)>(p, layout.packed, p.dv, p.value_dim, p.dv_strides, keys);
  return t;
}

// Under a mask the last rows, which see most keys, come first.
template <class Config>
attention_backward_dq_arguments<Config> dq_arguments(const attention_backward_params& p,
                                                     const attention_backward_layout& layout) {
  attention_backward_dq_arguments<Config> t{};
  set_operands(t, p, layout);
  const int64_t row_tiles = layout.blocks(p, p.rows, Config::tile_rows);
  t.tiles = {int(row_tiles),
             int(p.heads),
             int(p.batch),
             p.tile_counter != nullptr,
             t.tiles.together * t.heads_per_key,
             p.tile_counter};
  t.dq = row_map<decltype(t.dq)>(p, layout.packed, p.dq, p.head_dim, p.dq_strides);
  return t;
}

template <class Config>
void launch_dq(const attention_backward_params& p, const attention_backward_layout& layout,
               host::stream s) {
  const auto t = dq_arguments<Config>(p, layout);
  host::launch_programmatic(attention_backward_dq<Config>,
                            {{std::min<int64_t>(t.tiles.count(), host::multiprocessors())},
                             {Config::threads},
                             sizeof(attention_backward_dq_shared<Config>)},
                            s, t);
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
    if constexpr (!Config::adds_dq) {
      using dq_config = attention_backward_dq_config<typename Config::type, Config::head_dim,
                                                     Config::capped, Config::value_dim>;
      if (p.dq != nullptr) launch_dq<dq_config>(p, layout, s);
    }
  });
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
