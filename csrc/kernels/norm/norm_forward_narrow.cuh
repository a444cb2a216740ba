// The norms, forward, of rows of at most 256 columns: a few lanes a row, which are loaded before
// the parameters. No shared memory, no barrier.
#pragma once

#include "kernels/norm/dropout.cuh"
#include "kernels/norm/narrow_row.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_forward.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// As norm_forward_config, or any kind of any element. A multiprocessor has room for min_blocks;
// with fewer registers, ptxas spills.
template <class Kind, class T, int Run>
struct norm_forward_narrow_config {
  using kind = Kind;
  using type = T;
  // 16 elements a lane: with 8, each takes nearly as many instructions as two (524288 × 64,
  // rms_norm, bf16: 34.1 µs, and 36.4).
  using place = narrow_place<Run, Run == 1 ? 8 : 16>;
  using values = typename place::values;
  static constexpr int threads = 256;
  static constexpr int min_blocks = Run == 1 ? 2 : Kind::centred ? 4 : 5;
  static constexpr bool rounds = is_any_kind<Kind> || (sizeof(T) == 2 && !Kind::centred);

  KITTENS_DEVICE static bool centred(const norm_forward_params& p) {
    return is_any_kind<Kind> ? has_mean(p.op) : Kind::centred;
  }
};

// The moments of a lane's row; its values s become s − m.
template <class Config>
KITTENS_DEVICE row_moments take_narrow_moments(typename Config::values& s,
                                               const typename Config::place& at, bool centred,
                                               float inverse_width, float eps) {
  float mean[1] = {}, sum[1] = {}, squares[1] = {};
  if (centred) {
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
                                 const typename Config::values& bias, bool centred,
                                 bool round_first, dtype type) {
  const float shift = -row.delta * row.rstd;
#pragma unroll
  for (int i = 0; i < Config::place::elements; ++i) {
    if (centred) {
      d[i] = fmaf(fmaf(d[i], row.rstd, shift), weight[i], bias[i]);
    } else {
      d[i] *= row.rstd;
    }
  }
  if (!centred) {
    if (Config::rounds && round_first) {
      const auto round = [&]<class E>(E*) {
        lane_run<E, Config::place::elements> rounded;
        rounded.set(d);
        rounded.get(d);
      };
      if constexpr (is_any<typename Config::type>) {
        with_type(type, round);
      } else {
        round(static_cast<typename Config::type*>(nullptr));
      }
    }
#pragma unroll
    for (int i = 0; i < Config::place::elements; ++i) d[i] *= weight[i];
  }
}

// Grid: blocks of Config::threads / lanes rows.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    norm_forward_narrow(const __grid_constant__ norm_forward_params p, narrow_layout layout) {
  begin_dependent_grid();
  using T = typename Config::type;
  using place = typename Config::place;
  const place at(layout, p.width);
  const int64_t r = at.row(arch::block_x(), Config::threads);
  const bool there = r < p.rows;
  const bool centred = Config::centred(p);
  narrow_run<T, place> x, residual;
  x.template load<true>(at, p.x, p.type, row_offset(p.x_rows, r), there);
  if constexpr (Config::kind::adds) {
    residual.template load<true>(at, p.residual, p.residual_type, r * p.residual_stride,
                                 there && p.residual != nullptr);
  }
  typename place::values weight, bias;
  load_narrow_parameter<T>(weight, at, p.weight, p.weight_type, 1.0f, p.weight_offset);
  load_narrow_parameter<T>(bias, at, p.bias, p.bias_type, 0.0f, 0.0f);

  typename place::values d;
  x.get(d, p.type);
  if constexpr (Config::kind::adds) {
    typename place::values more;
    residual.get(more, p.residual_type);
    add_narrow_residual(d, more, at, dropout_mask(p.dropout), r);
    store_narrow<T>(p.sum, p.residual_type, r * p.width, at, d, there && p.sum != nullptr);
  }
  const row_moments moments =
      take_narrow_moments<Config>(d, at, centred, layout.inverse_width, p.eps);
  if (!there) return;
  scale_narrow<Config>(d, moments, weight, bias, centred, p.round_first, p.type);
  store_narrow<T>(p.y, p.type, r * p.width, at, d);
  if (at.lane == 0) store_moments(p, moments, r);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
