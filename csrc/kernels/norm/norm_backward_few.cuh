// The norms, backward, of few rows, in one launch: the mean and rstd of each row are saved, so
// dweight and dbias need nothing that is made of a whole row, and no block waits for another.
//
//   the first blocks  a few columns each, of all rows: warp w takes rows w, w + warps, …, several
//                     of which are on their way at a time; the warps' dweight and dbias are added
//                     in order, through shared memory: the same bits on every run
//   the others        one row each, which gets the bits of norm_backward.cuh; warps that the row
//                     has no columns for leave at once
//
// dy and s are asked for twice, and come from memory once: the second time they are in L2, or on
// their way to it. The blocks of columns take longer, and so start first.
//
// Numerics: over a large mean, ŝ of dweight lacks what the saved mean does, as in wide rows.
#pragma once

#include <algorithm>

#include "kernels/norm/norm_backward.cuh"
#include "kernels/norm/norm_reduce.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

inline constexpr int kFewWarps = 16;  // of a block: as many as the longest row has
inline constexpr int kFewRows = 8;    // on their way to a warp at a time

// A block's columns of all rows: 8 bytes a lane, so that there are many blocks.
template <class Config>
struct few_columns : Config {
  static constexpr int run = std::max(1, Config::layout::run / 2), length = kWarp * run;
  using layout = ducks::rv_layout::runs<run>;
  using vector = rv<float, length, layout>;
  template <class E>
  using loaded = rv<std::conditional_t<is_any<E>, float, E>, length, layout>;
  using loaded_dy = loaded<typename Config::type>;
  using loaded_s = loaded<typename Config::residual_type>;
  using part = sv<float, length>;  // of dweight or dbias, by one warp
  static constexpr int parts = Config::kind::centred ? 2 : 1;
};

// Writes dweight and dbias of a slice of the columns. Every thread of the block takes part.
template <class Config>
KITTENS_DEVICE void sum_columns(const norm_backward_params& p, int64_t slice) {
  using columns = few_columns<Config>;
  const int warp = arch::warp_id(), warps = arch::block_threads() / kWarp;
  const int left = int(p.width - slice * columns::length), rows = int(p.rows);
  weight_gradients<columns> total;
  for (int first = warp; first < rows; first += kFewRows * warps) {
    const auto row_of = [&](int u) { return first + u * warps; };
    loaded_row<columns> row[kFewRows];
#pragma unroll
    for (int u = 0; u < kFewRows; ++u) {
      if (row_of(u) < rows) row[u].load_from(p, row_of(u), slice);
    }
#pragma unroll
    for (int u = 0; u < kFewRows && row_of(u) < rows; ++u) {
      typename columns::vector d;
      row[u].unpack(p);
      row[u].centre(d, left);
      mul(d, d, row[u].rstd);
      total.add_row(row[u].dy, d);
    }
  }

  auto* parts = reinterpret_cast<typename columns::part*>(arch::dynamic_shared());
  store(parts[warp], total.dweight);
  if constexpr (Config::kind::centred) store(parts[warps + warp], total.dbias);
  arch::sync_block();
  // A warp adds 32 columns of one of the two.
  constexpr int kPieces = columns::length / kWarp;
  static_assert(kFewWarps >= columns::parts * kPieces);
  const int which = warp / kPieces, piece = warp % kPieces;
  if (which >= columns::parts) return;
  rv<float, kWarp> sum;
  zero(sum);
#pragma unroll 8
  for (int w = 0; w < warps; ++w) {
    const float* part = parts[which * warps + w].data;
    sum.data[0].words[0] += arch::load_shared(&part[piece * kWarp + arch::lane_id()]);
  }
  parameter_gradient(p, which).store(sum, p.width, slice * kPieces + piece);
}

// Writes dx and dresidual of row r.
template <class Config>
KITTENS_DEVICE void differentiate_row(const norm_backward_params& p, const row_layout& layout,
                                      int64_t r) {
  using vector = typename Config::vector;
  const int warp = arch::warp_id();
  if (warp >= layout.warps) return;
  using sum_shared = typename group_sum<Config::sums>::shared;
  group_sum<Config::sums> add{*reinterpret_cast<sum_shared*>(arch::dynamic_shared()), warp,
                              layout.warps, 1};

  loaded_row<Config> row;
  typename Config::loaded_s dsum;
  vector weight, d;
  row.load_from(p, r, warp);
  if constexpr (Config::kind::adds) {
    if constexpr (is_any<typename Config::type>) {
      const int64_t first = warp * vector::length;
      load_packed(dsum, p.dsum, p.residual_type, r * p.dsum_stride + first,
                  p.dsum == nullptr ? 0 : int(p.width - first));
    } else {
      using R = typename Config::residual_type;
      load(dsum, matrix<const R>(p.dsum, p.rows, p.dsum == nullptr ? 0 : p.width, p.dsum_stride),
           {.r = r, .c = warp});
    }
  }
  load_weight_slice<Config>(weight, p, warp);
  const dropout_mask mask(p.dropout);

  row.unpack(p);
  unpack_slice<typename Config::residual_type>(dsum, p.residual_type);
  row.centre(d, int(p.width) - warp * vector::length);
  float sums[Config::sums];
  row_sums<Config>(sums, d, row.dy, weight, has_mean<Config>(p));
  add(sums);
  const row_gradient<typename Config::kind> gradient(sums, row.rstd, layout.inverse_width);
  normalise(d, gradient);
  vector& ds = d;
  map(gradient, ds, row.dy, weight, d);
  if constexpr (Config::kind::adds) kittens::add(ds, ds, dsum);
  store_gradients<Config>(p, mask, ds, r, warp);
}

// Grid: `slices` blocks of columns, or none, then a block for each row, or none: what is wanted.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    norm_backward_few(const __grid_constant__ norm_backward_params p, row_layout layout,
                      int slices) {
  begin_dependent_grid();
  const int block = arch::block_x();
  if (block < slices) {
    sum_columns<Config>(p, block);
  } else {
    differentiate_row<Config>(p, layout, block - slices);
  }
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
