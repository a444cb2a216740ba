// attention: how a configuration of the generic kernel is launched: a block for each tile.
#pragma once

#include "kernels/attention/attention_generic.cuh"
#include "kernels/attention/attention_launch.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_attention_generic(const attention_forward_params& p, host::stream s) {
  using T = typename Config::type;
  using shared = attention_generic_shared<Config>;
  static_assert(host::fits_every_architecture(sizeof(shared)), "a block's shared memory");
  const int D = int(p.head_dim), Dv = int(p.value_dim);
  attention_generic_arguments<Config> t{};
  const int64_t tiles = set_arguments(t, p, Config::rows);
  t.tiles.counter = nullptr;
  t.q = {static_cast<const T*>(p.q), p.q_strides, D};
  t.k = {static_cast<const T*>(p.k), p.k_strides, D};
  t.v = {static_cast<const T*>(p.v), p.v_strides, Dv};
  t.o = {static_cast<T*>(p.o), output_strides(p), Dv};
  t.capped = p.softcap > 0;
  host::launch(attention_generic<Config>, {{tiles}, {Config::threads}, sizeof(shared)}, s, t);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
