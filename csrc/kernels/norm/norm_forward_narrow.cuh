// The norms, forward, of rows of at most 256 columns: a few lanes a row, up to four rows a lane at
// once, whose loads are all on their way before the first is used. No shared memory, no barrier.
#pragma once

#include "kernels/norm/dropout.cuh"
#include "kernels/norm/narrow_row.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_forward.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

// As norm_forward_config.
template <class Kind, class T, class R, int Run>
struct norm_forward_narrow_config {
  using kind = Kind;
  using type = T;
  using residual_type = std::conditional_t<Kind::adds, R, T>;
  static constexpr int run = Run, threads = 256, min_blocks = Run == 1 ? 2 : 3;
  // As many at once as fit in the 80 registers a thread has (128 where elements come one by one).
  static constexpr int rows = Run == 8 && !Kind::adds ? 4 : 2;
  static constexpr bool rounds = sizeof(T) == 2 && !Kind::centred;
};

// The moments of a lane's rows; their values s become s − m.
template <class Config>
KITTENS_DEVICE void take_narrow_moments(row_moments (&moments)[Config::rows],
                                        narrow_values (&s)[Config::rows],
                                        const narrow_place<Config::run>& at, float inverse_width,
                                        float eps) {
  constexpr int kRows = Config::rows;
  float means[kRows] = {}, sums[kRows] = {}, squares[kRows] = {};
  if constexpr (Config::kind::centred) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
#pragma unroll
      for (const float value : s[u]) means[u] += value;
    }
    sum_lanes(means, at.lanes);
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      means[u] = arch::mul_rounded(means[u], inverse_width);
#pragma unroll
      for (int i = 0; i < kNarrowElements; ++i) {
        s[u][i] -= at.inside(i / Config::run) ? means[u] : 0.0f;
        sums[u] += s[u][i];
      }
    }
    sum_lanes(sums, at.lanes);
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
#pragma unroll
    for (const float d : s[u]) squares[u] = fmaf(d, d, squares[u]);
  }
  sum_lanes(squares, at.lanes);
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    moments[u] = moments_of(means[u], sums[u], squares[u], inverse_width, eps);
  }
}

// s = dropout(s) + residual, in row r.
template <int Run>
KITTENS_DEVICE void add_narrow_residual(narrow_values& s, const narrow_values& residual,
                                        const narrow_place<Run>& at, const dropout_mask& mask,
                                        int64_t r) {
  narrow_values factor;
  if (mask.drops) {
    narrow_factors(factor, at, mask, r);
  } else {
#pragma unroll
    for (float& value : factor) value = 1.0f;
  }
#pragma unroll
  for (int i = 0; i < kNarrowElements; ++i) s[i] = fmaf(s[i], factor[i], residual[i]);
}

// From s − m to y.
template <class Config>
KITTENS_DEVICE void scale_narrow(narrow_values& d, const row_moments& row,
                                 const narrow_values& weight, const narrow_values& bias,
                                 bool round_first) {
  const float shift = -row.delta * row.rstd;
#pragma unroll
  for (int i = 0; i < kNarrowElements; ++i) {
    if constexpr (Config::kind::centred) {
      d[i] = fmaf(fmaf(d[i], row.rstd, shift), weight[i], bias[i]);
    } else {
      d[i] *= row.rstd;
    }
  }
  if constexpr (!Config::kind::centred) {
    if (Config::rounds && round_first) {
#pragma unroll
      for (float& value : d) value = convert<float>(convert<typename Config::type>(value));
    }
#pragma unroll
    for (int i = 0; i < kNarrowElements; ++i) d[i] *= weight[i];
  }
}

// Grid: any number of blocks.
template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::min_blocks)
    norm_forward_narrow(const __grid_constant__ norm_forward_params p, narrow_layout layout) {
  using T = typename Config::type;
  using R = typename Config::residual_type;
  constexpr int kRows = Config::rows;
  const narrow_place<Config::run> at(layout.lanes, p.width);
  const int groups = Config::threads / layout.lanes, group = arch::thread_id() / layout.lanes;
  const dropout_mask mask(p.dropout);
  narrow_values weight, bias;
  load_narrow_parameter<T>(weight, at, p.weight, p.weight_type, 1.0f, p.weight_offset);
  load_narrow_parameter<T>(bias, at, p.bias, p.bias_type, 0.0f, 0.0f);

  const int64_t step = int64_t(groups) * kRows;
  for (int64_t first = arch::block_x() * step; first < p.rows; first += arch::grid_x() * step) {
    const auto row_of = [&](int u) { return first + u * groups + group; };
    narrow_run<T, Config::run> x[kRows];
    narrow_run<R, Config::run> residual[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int64_t r = row_of(u);
      x[u].load(at, static_cast<const T*>(p.x) + row_offset(p.x_rows, r), r < p.rows);
      if constexpr (Config::kind::adds) {
        residual[u].load(at, static_cast<const R*>(p.residual) + r * p.residual_stride, r < p.rows);
      }
    }
    narrow_values d[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      x[u].get(d[u]);
      if constexpr (Config::kind::adds) {
        narrow_values more;
        residual[u].get(more);
        add_narrow_residual(d[u], more, at, mask, row_of(u));
        if (row_of(u) < p.rows)
          store_narrow(static_cast<R*>(p.sum) + row_of(u) * p.width, at, d[u]);
      }
    }
    row_moments moments[kRows];
    take_narrow_moments<Config>(moments, d, at, layout.inverse_width, p.eps);
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int64_t r = row_of(u);
      if (r >= p.rows) continue;
      scale_narrow<Config>(d[u], moments[u], weight, bias, p.round_first);
      store_narrow(static_cast<T*>(p.y) + r * p.width, at, d[u]);
      if (at.lane == 0) store_moments(p, moments[u], r);
    }
  }
}

}  // namespace thunderkittens::inline KITTENS_TARGET
