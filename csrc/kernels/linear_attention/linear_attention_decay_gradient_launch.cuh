// The gradient of linear attention's decays: its launches.
#pragma once

#include "kernels/linear_attention/linear_attention_decay_gradient.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_decay_gradient(const linear_attention_decay_gradient_params& p, host::stream s) {
  const int64_t tiles = (p.length + Config::tile - 1) / Config::tile;
  const int64_t groups = (p.heads + Config::heads - 1) / Config::heads;
  const int64_t blocks = p.batch * tiles * groups;
  const int64_t states = p.initial_state == nullptr ? 0 : p.sequences * p.heads;
  constexpr int64_t kShared = sizeof(decay_gradient_shared<Config>);
  // A single tile has none in front.
  const int64_t tile_blocks = tiles > 1 ? blocks : 0;
  if (tile_blocks + states > 0) {
    host::launch_programmatic(linear_attention_decay_totals<Config>,
                              {{tile_blocks + states}, {Config::threads}, kShared}, s, p,
                              static_cast<int>(tile_blocks));
  }
  host::launch_programmatic(linear_attention_decay_gradient<Config>,
                            {{blocks}, {Config::threads}, kShared}, s, p);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
