// linear: how its generic kernel is launched.
#pragma once

#include "kernels/linear/linear_generic.cuh"
#include "kernels/linear/linear_pass_launch.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_linear_generic(const linear_params& p, host::stream s) {
  using shared = linear_generic_shared<Config>;
  static_assert(Config::stages >= 2, "one is read while the next one comes");
  static_assert(sizeof(shared) <= kLinearGenericSharedBytes);
  static_assert(host::fits_every_architecture(sizeof(shared)), "a block's shared memory");
  linear_generic_arguments<Config> a{};
  set_arguments<Config>(a, p);
  a.x_stride = p.problem.x_stride;
  a.weight_stride = p.problem.weight_stride;
  host::launch_programmatic(linear_generic<Config>,
                            {.grid = {p.generic_blocks},
                             .block = {Config::warps * kWarp},
                             .shared_bytes = sizeof(shared)},
                            s, a);
}

// At least one element of y, and of the sum that it is.
template <class T>
void launch_generic_type(const linear_params& p, host::stream s) {
  with_pass(p.problem, p.generic_blocks, [&]<int Tiles, bool Gated>() {
    launch_linear_generic<linear_generic_config<T, Tiles, Gated>>(p, s);
  });
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
