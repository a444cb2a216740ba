// mamba2: the launch of the gates' gradients.
#pragma once

#include "kernels/mamba2/mamba2_gate_gradients.cuh"
#include "kittens/host/device.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_gate_gradients(const mamba2_gate_gradients_params& p, host::stream s) {
  static_assert(host::fits_every_architecture(sizeof(mamba2_gate_gradients_shared<Config>)),
                "a block's shared memory");
  const int64_t tiles = (p.length + Config::tile - 1) / Config::tile;
  const int64_t groups = (p.heads + Config::heads - 1) / Config::heads;
  host::launch_programmatic(
      mamba2_gate_gradients<Config>,
      {{p.batch * tiles * groups}, {Config::threads}, sizeof(mamba2_gate_gradients_shared<Config>)},
      s, p);
}

}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
