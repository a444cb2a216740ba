// The norms, backward, of rows that do not fit one block's registers: norm_backward_long_dx reads
// each row twice, a block a row; norm_backward_long_sums makes the partial sums of dweight and
// dbias, a warp per 512 columns.
#pragma once

#include "kernels/norm/norm_backward.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// Grid: one block a row, which walks over the row's slices twice.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, 1)
    norm_backward_long_dx(const __grid_constant__ norm_backward_params p, row_layout layout) {
  using vector = typename Config::vector;
  const int warps = layout.warps, warp = arch::warp_id();
  const int64_t slices = (p.width + vector::length - 1) / vector::length;
  const int64_t r = arch::block_x();
  using sum_shared = typename group_sum<Config::sums>::shared;
  group_sum<Config::sums> add{*reinterpret_cast<sum_shared*>(arch::dynamic_shared()), warp, warps,
                              1};

  const dropout_mask mask(p.dropout);
  loaded_row<Config> row;
  vector d, weight;
  const auto load_row = [&](int64_t slice) {
    row.load_from(p, r, slice);
    row.unpack(p);
    row.centre(d, int(p.width - slice * vector::length));
    load_weight_slice<Config>(weight, p, slice);
  };
  float sums[Config::sums] = {};
  for (int64_t slice = warp; slice < slices; slice += warps) {
    load_row(slice);
    float here[Config::sums];
    row_sums<Config>(here, d, row.dy, weight, has_mean<Config>(p));
    for (int i = 0; i < Config::sums; ++i) sums[i] += here[i];
  }
  add(sums);
  for (int64_t slice = warp; slice < slices; slice += warps) {
    load_row(slice);
    const row_gradient<typename Config::kind> gradient(sums, row.rstd, layout.inverse_width);
    normalise(d, gradient);
    vector& ds = d;
    map(gradient, ds, row.dy, weight, d);
    if (Config::kind::adds && p.dsum != nullptr) {
      vector dsum;
      load_slice<typename Config::residual_type>(dsum, p.dsum, p.residual_type, p, p.dsum_stride, r,
                                                 slice);
      unpack_slice<typename Config::residual_type>(dsum, p.residual_type);
      kittens::add(ds, ds, dsum);
    }
    store_gradients<Config>(p, mask, ds, r, slice);
  }
}

// Grid: (slices / warps, partial_rows). A warp adds its 512 columns over every partial_rows-th row.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    norm_backward_long_sums(const __grid_constant__ norm_backward_params p) {
  using vector = typename Config::vector;
  const int64_t slice =
      int64_t(arch::block_x()) * (arch::block_threads() / kWarp) + arch::warp_id();
  const int columns = int(p.width - slice * vector::length);
  if (columns <= 0) return;

  weight_gradients<Config> total;
  vector d;
  for (int64_t r = arch::block_y(); r < p.rows; r += p.partial_rows) {
    loaded_row<Config> row;
    row.load_from(p, r, slice);
    row.unpack(p);
    row.centre(d, columns);
    mul(d, d, row.rstd);
    total.add_row(row.dy, d);
  }
  store_partial<Config>(p, total, arch::block_y(), slice);
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
