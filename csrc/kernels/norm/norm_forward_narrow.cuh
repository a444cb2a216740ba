// The norms, forward, of rows of at most 256 columns: a few lanes a row, which are loaded before
// the parameters. No shared memory, no barrier.
#pragma once

#include "kernels/norm/dropout.cuh"
#include "kernels/norm/narrow_row.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_forward.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// As norm_forward_config. A multiprocessor has room for min_blocks; with fewer registers, ptxas
// spills.
template <class Kind, class T, class R, int Run>
struct norm_forward_narrow_config {
  using kind = Kind;
  using type = T;
  using residual_type = std::conditional_t<Kind::adds, R, T>;
  // 16 elements a lane: with 8, each takes nearly as many instructions as two (524288 × 64,
  // rms_norm, bf16: 34.1 µs, and 36.4).
  using place = narrow_place<Run, Run == 1 ? 8 : 16>;
  using values = typename place::values;
  static constexpr int threads = 256;
  static constexpr int min_blocks = Run == 1 || Kind::adds ? 2 : Kind::centred ? 4 : 5;
  static constexpr bool rounds = sizeof(T) == 2 && !Kind::centred;
};

// The moments of a lane's row; its values s become s − m.
template <class Config>
KITTENS_DEVICE row_moments take_narrow_moments(typename Config::values& s,
                                               const typename Config::place& at,
                                               float inverse_width, float eps) {
  float mean[1] = {}, sum[1] = {}, squares[1] = {};
  if constexpr (Config::kind::centred) {
#pragma unroll
    for (const float value : s) mean[0] += value;
    sum_lanes(mean, at.lanes);
    mean[0] = arch::mul_rounded(mean[0], inverse_width);
#pragma unroll
    for (int i = 0; i < Config::place::elements; ++i) {
      s[i] -= at.inside(i / Config::place::run) ? mean[0] : 0.0f;
      sum[0] += s[i];
    }
    sum_lanes(sum, at.lanes);
  }
#pragma unroll
  for (const float d : s) squares[0] = fmaf(d, d, squares[0]);
  sum_lanes(squares, at.lanes);
  return moments_of(mean[0], sum[0], squares[0], inverse_width, eps);
}

// s = dropout(s) + residual, in row r.
template <class Place>
KITTENS_DEVICE void add_narrow_residual(typename Place::values& s,
                                        const typename Place::values& residual, const Place& at,
                                        const dropout_mask& mask, int64_t r) {
  typename Place::values factor;
  if (mask.drops) {
    narrow_factors(factor, at, mask, r);
  } else {
#pragma unroll
    for (float& value : factor) value = 1.0f;
  }
#pragma unroll
  for (int i = 0; i < Place::elements; ++i) s[i] = fmaf(s[i], factor[i], residual[i]);
}

// From s − m to y.
template <class Config>
KITTENS_DEVICE void scale_narrow(typename Config::values& d, const row_moments& row,
                                 const typename Config::values& weight,
                                 const typename Config::values& bias, bool round_first) {
  const float shift = -row.delta * row.rstd;
#pragma unroll
  for (int i = 0; i < Config::place::elements; ++i) {
    if constexpr (Config::kind::centred) {
      d[i] = fmaf(fmaf(d[i], row.rstd, shift), weight[i], bias[i]);
    } else {
      d[i] *= row.rstd;
    }
  }
  if constexpr (!Config::kind::centred) {
    if (Config::rounds && round_first) {
      lane_run<typename Config::type, Config::place::elements> rounded;
      rounded.set(d);
      rounded.get(d);
    }
#pragma unroll
    for (int i = 0; i < Config::place::elements; ++i) d[i] *= weight[i];
  }
}

// Grid: blocks of Config::threads / lanes rows.
template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::min_blocks)
    norm_forward_narrow(const __grid_constant__ norm_forward_params p, narrow_layout layout) {
  begin_dependent_grid();
  using T = typename Config::type;
  using R = typename Config::residual_type;
  using place = typename Config::place;
  const place at(layout, p.width);
  const int64_t r = at.row(arch::block_x(), Config::threads);
  const bool there = r < p.rows;
  narrow_run<T, place> x;
  x.template load<true>(at, static_cast<const T*>(p.x) + row_offset(p.x_rows, r), there);
  narrow_run<R, place> residual;
  if constexpr (Config::kind::adds) {
    residual.template load<true>(at, static_cast<const R*>(p.residual) + r * p.residual_stride,
                                 there);
  }
  typename place::values weight, bias;
  load_narrow_parameter<T>(weight, at, p.weight, p.weight_type, 1.0f, p.weight_offset);
  load_narrow_parameter<T>(bias, at, p.bias, p.bias_type, 0.0f, 0.0f);

  typename place::values d;
  x.get(d);
  if constexpr (Config::kind::adds) {
    typename place::values more;
    residual.get(more);
    add_narrow_residual(d, more, at, dropout_mask(p.dropout), r);
    store_narrow(static_cast<R*>(p.sum) + r * p.width, at, d, there);
  }
  const row_moments moments = take_narrow_moments<Config>(d, at, layout.inverse_width, p.eps);
  if (!there) return;
  scale_narrow<Config>(d, moments, weight, bias, p.round_first);
  store_narrow(static_cast<T*>(p.y) + r * p.width, at, d);
  if (at.lane == 0) store_moments(p, moments, r);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
