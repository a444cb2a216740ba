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
  attention_generic_arguments<Config> t{};
  const int64_t tiles = set_arguments(t, p, Config::rows);
  t.tiles.counter = nullptr;
  t.q = {static_cast<const T*>(p.q), p.q_strides, int(p.head_dim)};
  t.k = {static_cast<const T*>(p.k), p.k_strides, int(p.head_dim)};
  t.v = {static_cast<const T*>(p.v), p.v_strides, int(p.value_dim)};
  t.o = {static_cast<T*>(p.o), output_strides(p), int(p.value_dim)};
  t.capped = p.softcap > 0;
  host::launch(attention_generic<Config>, {{tiles}, {Config::threads}, sizeof(shared)}, s, t);
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
