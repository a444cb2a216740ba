// mamba2: the launch of the gates.
#pragma once

#include "kernels/mamba2/mamba2_gates.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {

template <class T>
void launch_gates_of(const mamba2_gates_params& p, host::stream s) {
  using Config = mamba2_gates_config<T>;
  const int64_t tiles = (p.length + Config::tokens - 1) / Config::tokens;
  const int64_t groups = (p.heads + Config::heads - 1) / Config::heads;
  host::launch(mamba2_gates<Config>,
               {{p.batch * tiles * groups}, {Config::threads}, sizeof(mamba2_gates_shared<Config>)},
               s, p);
}

}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
