// linear: how its kernel for Hopper is launched.
#pragma once

#include "kernels/linear/linear.cuh"
#include "kernels/linear/linear_pass_launch.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

// Whether a block has a pass of so many groups: whole ones, or its last one.
template <class Config>
bool has_pass_of(int groups, int all, int blocks) {
  const int least = all / blocks, most = host::ceil_div(all, blocks);
  if (groups == Config::groups) return most >= groups;
  return least % Config::groups == groups || most % Config::groups == groups;
}

template <class Config>
void launch_linear_form(const linear_params& params, host::stream s) {
  using T = typename Config::type;
  static_assert(Config::stages >= 2, "one is read while the next one comes");
  const linear_problem& p = params.problem;
  const auto matrix = [&](const void* data, int64_t rows, int64_t stride) {
    return gl<T>::matrix(static_cast<T*>(const_cast<void*>(data)), rows, p.in_features, stride);
  };
  const auto* weight = static_cast<const T*>(params.tensors.weight);
  linear_tma_arguments<Config> a{};
  a.x = decltype(a.x)::of_first_rows(matrix(params.tensors.x, p.rows, p.x_stride), int(p.rows));
  set_arguments<Config>(a, params);
  for (int groups = 1; groups <= Config::groups; ++groups) {
    if (!has_pass_of<Config>(groups, a.groups, params.blocks)) continue;
    using map = tma_map<typename Config::weight_tile>;
    const auto of_rows_from = [&](int64_t row) {
      const T* const rows = weight + row * p.weight_stride;
      return map::of_tiles(matrix(rows, p.out_features, p.weight_stride), groups);
    };
    a.weight[groups - 1] = of_rows_from(0);
    if constexpr (Config::gated) a.up[groups - 1] = of_rows_from(p.out_features);
  }
  const constant_parts<Config> constant(params);
  host::launch_programmatic(linear<Config>,
                            {.grid = {params.blocks},
                             .block = {Config::warps * kWarp},
                             .shared_bytes = sizeof(linear_shared<Config>),
                             .constant = constant.ranges()},
                            s, a);
}
template <class Config>
void launch_linear(const linear_params& p, host::stream s) {
  with_form_for_weight<Config>(p.problem, [&]<class Form> { launch_linear_form<Form>(p, s); });
}

// Passes of no more tiles than a block has: their stages are smaller, and more of them.
template <class T, bool Gated>
void launch_in_passes(const linear_params& p, host::stream s) {
  const int64_t groups = host::ceil_div(p.problem.out_features, int64_t{kGroup});
  const int64_t most = host::ceil_div(groups, int64_t{p.blocks}) * (Gated ? 2 : 1);
  if (most <= 2) return launch_linear<linear_config<T, 2, Gated>>(p, s);
  if constexpr (!Gated) {
    if (most == 3) return launch_linear<linear_config<T, 3, Gated>>(p, s);
  }
  launch_linear<linear_config<T, 4, Gated>>(p, s);
}

// At least one element of y, and of the sum that it is.
template <class T>
void launch_type(const linear_params& p, host::stream s) {
  if (p.problem.gated) return launch_in_passes<T, true>(p, s);
  launch_in_passes<T, false>(p, s);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
