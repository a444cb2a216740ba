// linear, 17 to 64 rows: how its kernel for Hopper is launched.
#pragma once

#include <span>

#include "kernels/linear/linear_rows.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

// Which groups are whose.
template <class Config>
void share_groups(linear_rows_arguments<Config>& a, int blocks) {
  a.groups_of_block = a.groups / blocks;
  a.blocks_of_one_more = a.groups % blocks;
  const int most = host::ceil_div(a.groups, blocks);
  a.passes = host::ceil_div(most * (a.gated ? 2 : 1), Config::block_tiles);
  a.groups_of_pass = host::ceil_div(most, a.passes);
}

template <class Config>
void launch_linear_rows(const linear_params& params, host::stream s) {
  using T = typename Config::type;
  static_assert(Config::stages >= 2, "one is read while the next one comes");
  const linear_problem& p = params.problem;
  const auto matrix = [&](const void* data, int64_t rows, int64_t stride) {
    return gl<T>::matrix(static_cast<T*>(const_cast<void*>(data)), rows, p.in_features, stride);
  };
  const auto* weight = static_cast<const T*>(params.tensors.weight);
  linear_rows_arguments<Config> a{};
  a.x = decltype(a.x)::of_first_rows(matrix(params.tensors.x, p.rows, p.x_stride), int(p.rows));
  a.weight = decltype(a.weight)::of(matrix(weight, p.out_features, p.weight_stride));
  a.up = p.gated ? decltype(a.up)::of(matrix(weight + p.out_features * p.weight_stride,
                                             p.out_features, p.weight_stride))
                 : a.weight;
  a.tensors = params.tensors;
  a.rows = int(p.rows);
  a.steps = int(host::ceil_div(p.in_features, int64_t{Config::chunk * Config::chunks}));
  a.in_features = int(p.in_features);
  a.out_features = int(p.out_features);
  a.groups = int(host::ceil_div(p.out_features, int64_t{kGroup}));
  a.norm_eps = float(p.norm_eps);
  a.gated = p.gated;
  a.weight_is_constant = p.weight_is_constant;
  const auto is_aligned = [](const void* t) { return reinterpret_cast<uintptr_t>(t) % 8 == 0; };
  a.by_quads = p.out_features % 4 == 0 && is_aligned(params.tensors.y) &&
               is_aligned(params.tensors.bias) && is_aligned(params.tensors.residual);
  share_groups(a, params.blocks);
  const int64_t rows = p.out_features * (p.gated ? 2 : 1);
  const host::memory_range constant{
      weight, ((rows - 1) * p.weight_stride + p.in_features) * int64_t{sizeof(T)}};
  host::launch_programmatic(
      linear_rows<Config>,
      {.grid = {params.blocks},
       .block = {Config::threads},
       .shared_bytes = sizeof(linear_rows_shared<Config>),
       .constant = std::span(&constant, p.weight_is_constant ? size_t{1} : size_t{0})},
      s, a);
}

// x's rows in tiles of 16: two where that is enough.
template <class T>
void launch_rows_type(const linear_params& p, host::stream s) {
  if (p.problem.rows <= 2 * kRows) return launch_linear_rows<linear_rows_config<T, 2>>(p, s);
  launch_linear_rows<linear_rows_config<T, 4>>(p, s);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
