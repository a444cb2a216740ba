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
  static_assert(sizeof(shared) <= size_t{1024} * Config::form.shared_kb, "a block's shared memory");
  const int D = int(p.head_dim), Dv = int(p.value_dim);
  const auto of_keys = [&](int width) {
    return attention_strides{p.keys * p.key_heads * width, p.key_heads * width, width};
  };
  attention_backward_generic_arguments<Config> t{};
  set_call<Config>(t, p, layout);
  t.tiles.counter = nullptr;
  t.q = {static_cast<const T*>(p.q), p.q_strides, D};
  t.d_o = {static_cast<const T*>(p.d_o), p.do_strides, Dv};
  t.k = {static_cast<const T*>(p.k), p.k_strides, D};
  t.v = {static_cast<const T*>(p.v), p.v_strides, Dv};
  t.dk = {static_cast<T*>(p.dk), of_keys(D), D};
  t.dv = {static_cast<T*>(p.dv), of_keys(Dv), Dv};
  t.needs_dq = p.dq != nullptr;
  launch_around<typename Config::rows_config>(p, layout, s, [&] {
    host::launch_programmatic(attention_backward_generic<Config>,
                              {{t.tiles.count()}, {Config::threads}, sizeof(shared)}, s, t);
  });
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
