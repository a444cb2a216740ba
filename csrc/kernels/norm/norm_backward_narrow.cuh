// The norms, backward, of rows of at most 256 columns: a few lanes a row, one or two rows a lane at
// once. Each lane keeps the sums of its columns' dweight and dbias over its rows in registers; a
// block adds up those of the lanes that hold the same columns, in order, into one row of `partial`.
#pragma once

#include "kernels/norm/narrow_row.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_backward.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// As norm_forward_config, or any kind of any element.
template <class Kind, class T, int Run>
struct norm_backward_narrow_config {
  using kind = Kind;
  using type = T;
  using place = narrow_place<Run, norm_narrow_shape::kElements>;
  using values = typename place::values;
  static constexpr int rows = Run == 8 && !Kind::adds ? 2 : 1, sums = Kind::centred ? 3 : 1;
  static constexpr int threads = norm_narrow_shape::kBackwardThreads;
  // Elements that come one by one need more than the 80 registers that three blocks leave.
  static constexpr int min_blocks = Run == 1 ? 2 : norm_narrow_shape::kBackwardBlocks;
};

// A lane's share of one row.
template <class Config>
struct narrow_gradient {
  using T = typename Config::type;
  using place = typename Config::place;
  using values = typename place::values;

  narrow_run<T, place> dy, s, dsum;
  float mean = 0.0f, rstd = 0.0f;

  KITTENS_DEVICE void load_from(const norm_backward_params& p, const place& at, int64_t r) {
    const bool there = r < p.rows;
    dy.load(at, p.dy, p.type, row_offset(p.dy_rows, r), there);
    s.load(at, p.x, p.residual_type, row_offset(p.x_rows, r), there);
    if constexpr (Config::kind::adds) {
      dsum.load(at, p.dsum, p.residual_type, r * p.dsum_stride, there && p.dsum != nullptr);
    }
    if (!there) return;
    if (has_mean<Config>(p)) mean = arch::load_global(p.mean + r);
    rstd = arch::load_global(p.rstd + r);
  }
  // d = s − mean, zero past the last column; and the lane's part of the row's sums.
  KITTENS_DEVICE void centre(const norm_backward_params& p, values& d, const place& at) const {
    s.get(d, p.residual_type);
    if constexpr (Config::kind::centred) {
#pragma unroll
      for (int i = 0; i < place::elements; ++i) d[i] -= at.inside(i / place::run) ? mean : 0.0f;
    }
  }
  KITTENS_DEVICE void sums(const norm_backward_params& p, float (&sums)[Config::sums],
                           const values& d, const values& weight) const {
    values g;
    dy.get(g, p.type);
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
#pragma unroll
    for (int i = 0; i < place::elements; ++i) {
      g[i] *= weight[i];
      if constexpr (Config::kind::centred) {
        sums[0] += d[i];
        sums[1] += g[i];
      }
      sums[Config::sums - 1] = fmaf(g[i], d[i], sums[Config::sums - 1]);
    }
    if constexpr (Config::kind::centred) {
      if (!has_mean<Config>(p)) sums[0] = sums[1] = 0.0f;
    }
  }
  // Writes dresidual and dx; d becomes ŝ.
  KITTENS_DEVICE void store(const norm_backward_params& p, const place& at, values& d,
                            const values& weight, const float (&sums)[Config::sums],
                            float inverse_width, const dropout_mask& mask, int64_t r) const {
    const row_gradient<typename Config::kind> gradient(sums, rstd, inverse_width);
    values ds, more;
    dy.get(ds, p.type);
    if constexpr (Config::kind::adds) dsum.get(more, p.residual_type);
#pragma unroll
    for (int i = 0; i < place::elements; ++i) {
      d[i] = gradient.normal(d[i]);
      ds[i] = gradient(ds[i], weight[i], d[i]);
      if constexpr (Config::kind::adds) ds[i] += more[i];
    }
    if (r >= p.rows) return;
    if constexpr (Config::kind::adds) {
      if (p.dresidual != nullptr) {
        store_narrow<T>(p.dresidual, p.residual_type, r * p.width, at, ds);
      }
      if (p.dx != nullptr && mask.drops) {
        values factor;
        narrow_factors(factor, at, mask, r);
#pragma unroll
        for (int i = 0; i < place::elements; ++i) ds[i] *= factor[i];
      }
    }
    if (p.dx != nullptr) store_narrow<T>(p.dx, p.type, r * p.width, at, ds);
  }
};

// The sums of the block's warps, for one of the two parameters.
struct narrow_sums {
  float value[norm_narrow_shape::kBackwardThreads / kWarp][kNormNarrowWidth];
};

// Adds a lane's sums to those of the lanes and warps that hold the same columns, in order, and
// writes them to partial[row]. Every thread of the block takes part.
template <class Config>
KITTENS_DEVICE void store_narrow_partial(const norm_backward_params& p,
                                         typename Config::values& sums,
                                         const typename Config::place& at, narrow_sums& shared,
                                         int64_t row) {
  for (int step = at.lanes; step < kWarp; step *= 2) {
#pragma unroll
    for (float& sum : sums) sum += arch::shuffle_xor(sum, step);
  }
  if (arch::lane_id() < at.lanes) {
#pragma unroll
    for (int i = 0; i < Config::place::elements; ++i) {
      const int column = at.column(i / Config::place::run) + i % Config::place::run;
      arch::store_shared(&shared.value[arch::warp_id()][column], sums[i]);
    }
  }
  arch::sync_block();
  const int column = arch::thread_id();
  if (column >= at.width) return;
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < Config::threads / kWarp; ++warp) {
    total += arch::load_shared(&shared.value[warp][column]);
  }
  arch::store_global(p.partial + row * p.width + column, total);
}

// Grid: partial_rows blocks, whether or not a weight gradient is wanted.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    norm_backward_narrow(const __grid_constant__ norm_backward_params p, narrow_layout layout) {
  using T = typename Config::type;
  constexpr int kRows = Config::rows, kSums = Config::sums;
  static_assert(Config::threads >= kNormNarrowWidth, "a thread a column adds up the warps' sums");
  const typename Config::place at(layout, p.width);
  const int groups = at.groups(Config::threads);
  const dropout_mask mask(p.dropout);
  typename Config::values weight, dweight = {}, dbias = {};
  load_narrow_parameter<T>(weight, at, p.weight, p.weight_type, 1.0f, p.weight_offset);

  const int64_t step = int64_t(groups) * kRows;
  for (int64_t first = arch::block_x() * step; first < p.rows; first += arch::grid_x() * step) {
    const auto row_of = [&](int u) { return first + u * groups + at.group; };
    narrow_gradient<Config> row[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) row[u].load_from(p, at, row_of(u));
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      typename Config::values d, dy;
      float sums[kSums];
      row[u].centre(p, d, at);
      row[u].sums(p, sums, d, weight);
      sum_lanes(sums, at.lanes);
      row[u].store(p, at, d, weight, sums, layout.inverse_width, mask, row_of(u));
      row[u].dy.get(dy, p.type);
#pragma unroll
      for (int i = 0; i < Config::place::elements; ++i) {
        dweight[i] = fmaf(dy[i], d[i], dweight[i]);
        if constexpr (Config::kind::centred) dbias[i] += dy[i];
      }
    }
  }
  if (p.partial == nullptr) return;
  auto* shared = reinterpret_cast<narrow_sums*>(arch::dynamic_shared());
  store_narrow_partial<Config>(p, dweight, at, shared[0], arch::block_x());
  if (has_mean<Config>(p)) {
    store_narrow_partial<Config>(p, dbias, at, shared[1], p.partial_rows + arch::block_x());
  }
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
