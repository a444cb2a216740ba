// attention: how a configuration of the backward's generic kernel is launched: a block for each
// tile.
#pragma once

#include "kernels/attention/attention_backward_generic.cuh"
#include "kernels/attention/attention_backward_rows_launch.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_attention_backward_generic(const attention_backward_params& p,
                                       const attention_backward_layout& layout, host::stream s) {
  using T = typename Config::type;
  using shared = attention_backward_generic_shared<Config>;
  static_assert(Config::rows_config::adds_dq);
  static_assert(sizeof(shared) <= size_t{1024} * Config::form.shared_kb, "a block's shared memory");
  attention_backward_generic_arguments<Config> t{};
  set_call<Config>(t, p, layout);
  t.tiles.counter = nullptr;
  t.q = {static_cast<const T*>(p.q), p.q_strides, int(p.head_dim)};
  t.d_o = {static_cast<const T*>(p.d_o), p.do_strides, int(p.value_dim)};
  t.k = {static_cast<const T*>(p.k), p.k_strides, int(p.head_dim)};
  t.v = {static_cast<const T*>(p.v), p.v_strides, int(p.value_dim)};
  t.dk = {static_cast<T*>(p.dk), p.dk_strides, int(p.head_dim)};
  t.dv = {static_cast<T*>(p.dv), p.dv_strides, int(p.value_dim)};
  t.needs_dq = p.dq != nullptr;
  launch_around<typename Config::rows_config>(p, layout, s, [&] {
    host::launch_programmatic(attention_backward_generic<Config>,
                              {{t.tiles.count()}, {Config::threads}, sizeof(shared)}, s, t);
  });
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
