// linear: how its kernel for Hopper is launched.
#pragma once

#include "kernels/linear/linear.cuh"
#include "kernels/linear/linear_pass_launch.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_linear(const linear_params& params, host::stream s) {
  using T = typename Config::type;
  static_assert(Config::stages >= 2, "one is read while the next one comes");
  const linear_problem& p = params.problem;
  const auto matrix = [&](const void* data, int64_t rows, int64_t stride) {
    return gl<T>::matrix(static_cast<T*>(const_cast<void*>(data)), rows, p.in_features, stride);
  };
  const auto* weight = static_cast<const T*>(params.tensors.weight);
  linear_tma_arguments<Config> a{};
  a.x = decltype(a.x)::of(matrix(params.tensors.x, p.rows, p.x_stride));
  a.weight = decltype(a.weight)::of(matrix(weight, p.out_features, p.weight_stride));
  if constexpr (Config::gated) {
    a.up = decltype(a.up)::of(
        matrix(weight + p.out_features * p.weight_stride, p.out_features, p.weight_stride));
  }
  set_arguments<Config>(a, params);
  host::launch_programmatic(linear<Config>,
                            {.grid = {params.blocks},
                             .block = {Config::warps * kWarp},
                             .shared_bytes = sizeof(linear_shared<Config>)},
                            s, a);
}

// At least one element of y, and of the sum that it is.
template <class T>
void launch_type(const linear_params& p, host::stream s) {
  with_pass(p.problem, p.blocks,
            [&]<int Tiles, bool Gated>() { launch_linear<linear_config<T, Tiles, Gated>>(p, s); });
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
