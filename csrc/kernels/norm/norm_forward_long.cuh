// The norms, forward, of rows that do not fit one block's registers, of one 16-bit element type:
// read two or three times, from L2 after the first.
#pragma once

#include "kernels/norm/norm_forward.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// Grid: one block a row, which walks over the row's slices once for each sum, and once more.
//
// The bound's 1 lets ptxas take 68 registers; without it, it spills 8 bytes to stay at 64
// (CUDA 13.0).
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, 1)
    norm_forward_long(const __grid_constant__ norm_forward_params p, row_layout layout) {
  begin_dependent_grid();
  using vector = typename Config::vector;
  using T = typename Config::type;
  using R = typename Config::residual_type;
  const int warps = layout.warps, warp = arch::warp_id();
  const int64_t r = arch::block_x();
  const int64_t slices = (p.width + vector::length - 1) / vector::length;
  const auto x = matrix<const T>(p.x, p.rows, p.width, p.x_rows.outer);
  const dropout_mask mask(p.dropout);

  group_sum<2> add{*reinterpret_cast<group_sum<2>::shared*>(arch::dynamic_shared()), warp, warps,
                   1};

  vector d;
  const auto load_sum = [&](int64_t slice) {
    load(d, x, {.r = r, .c = slice});
    if constexpr (Config::kind::adds) {
      typename Config::template row_of<R> residual;
      load(residual, matrix<const R>(p.residual, p.rows, p.width, p.residual_stride),
           {.r = r, .c = slice});
      add_residual(d, residual, mask, r * p.width + slice * vector::length);
    }
  };
  float m = 0.0f, sums[2] = {0.0f, 0.0f};
  if constexpr (Config::kind::centred) {
    for (int64_t slice = warp; slice < slices; slice += warps) {
      load_sum(slice);
      float here;
      sum(here, d);
      sums[0] += here;
    }
    add(sums);
    m = arch::mul_rounded(sums[0], layout.inverse_width);
  }
  const auto centre = [&](int64_t slice) {
    if constexpr (Config::kind::centred) {
      sub(d, d, m);
      right_fill(d, d, int(p.width - slice * vector::length), 0.0f);
    }
  };
  sums[0] = sums[1] = 0.0f;
  for (int64_t slice = warp; slice < slices; slice += warps) {
    load_sum(slice);
    centre(slice);
    float here[2] = {0.0f, 0.0f};
    if constexpr (Config::kind::centred) sum(here[0], d);
    dot(here[1], d, d);
    sums[0] += here[0];
    sums[1] += here[1];
  }
  add(sums);
  const row_moments row = moments_of(m, sums[0], sums[1], layout.inverse_width, p.eps);

  for (int64_t slice = warp; slice < slices; slice += warps) {
    load_sum(slice);
    if constexpr (Config::kind::adds) {
      store(matrix<R>(p.sum, p.rows, p.width, p.width), d, {.r = r, .c = slice});
    }
    centre(slice);
    vector weight, bias;
    load_weight<typename Config::kind, T>(weight, p.weight, p.weight_type, p.width, slice,
                                          p.weight_offset);
    load_parameter<T>(bias, p.bias, p.bias_type, p.width, slice, 0.0f);
    scale_row<Config>(d, row, weight, bias, p.round_first);
    store(matrix<T>(p.y, p.rows, p.width, p.width), d, {.r = r, .c = slice});
  }
  if (arch::thread_id() == 0) store_moments(p, row, r);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
