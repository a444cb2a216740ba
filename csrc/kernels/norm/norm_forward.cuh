// The norms, forward, per row s of x, or of dropout(x) + residual:
//
//   y = (s − mean) · rstd · weight + bias,     rstd = 1 / sqrt(var + eps)         centred kinds
//   y = s · rstd · (weight + weight_offset),   rstd = 1 / sqrt(mean(s²) + eps)    the others
//
//   x, residual [rows, width] → y, s [rows, width], mean [rows], rstd [rows]
//
// Memory-bound: x and residual are read once, y and s written once. All loads of a row are on their
// way before the first is used, and the row stays in registers until it is stored; while one block
// waits, the others of its multiprocessor load. The weights are loaded again for each row, from L1.
//
//   width ≤ 256:    norm_forward_narrow.cuh: a few lanes a row
//   above:          each warp holds up to 1024 columns; a block has one row, or several of a warp
//                   each; norm_configs.cuh says which configuration takes which rows
//   the rest:       norm_forward_any.cuh: longer rows, mixed types, unaligned rows
//
// Numerics: the variance is taken about a float m near the mean, and both are corrected by the mean
// of what is left, delta = mean(s − m):  mean = m + delta,  var = mean((s − m)²) − delta². So
// s − m − delta is right even where |mean| is 10⁶ standard deviations. (s − m is exact there; as an
// fma of the product behind m it would not be, and a row of equal values not zero.) The statistics
// of a sum are those of the sum in float; its rounding is the output's alone.
//
// m is the rounded mean. Of long 16-bit rows it is that of the row's head, its first 32 runs, which
// every warp finds out without waiting for the others, so that one barrier is enough. Whatever is
// in the row, mean((s − m)²) is at most width / (columns of the head) times the variance: 64 times,
// which costs the statistics up to 6 of their 24 bits.
#pragma once

#include <algorithm>
#include <cfloat>

#include "kernels/norm/dropout.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/row.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// Kind: a member of the family. T: element type of x and y. Run: elements a lane moves at once (16
// bytes, or 1 where rows are not aligned). Elements: how many of the row a lane holds. Warps: at
// most, of a row. Registers: of a thread, at most; the fewer, the more rows are on their way.
// Early: whether the weights are on their way together with the row. Rows: of a block, where each
// has one warp. W: element type of weight and bias, or void where neither is given. R: of residual
// and sum.
template <class Kind, class T, int Run, int Elements, int Warps, int Registers, bool Early = false,
          int Rows = 1, class W = T, class R = T>
struct norm_forward_config {
  using kind = Kind;
  using type = T;
  using residual_type = R;
  using parameter_type = W;
  using layout = ducks::rv_layout::runs<Run>;
  template <class E>
  using row_of = rv<E, kWarp * Elements, layout>;
  using vector = row_of<float>;
  static constexpr bool early = Early;
  // What of the row is multiplied and stored at a time; late weights come for as much at once: for
  // 16 elements of a lane, unless they are floats beside a row of 32, or none, or halves beside two
  // rows of 32.
  static constexpr bool tight =
      std::is_same_v<W, float> || std::is_void_v<W> || (Kind::adds && std::is_same_v<T, half>);
  static constexpr bool small = Early || Elements % 16 != 0 || (Elements > 16 && tight);
  using piece = rv<float, kWarp*(small ? 8 : 16), layout>;
  static_assert(vector::length % piece::length == 0);
  // The row's first runs, and whether it is about their mean that the variance is taken: rows of
  // such forms are longer.
  using head = rv<T, kWarp * Run, layout>;
  static constexpr bool has_head =
      Kind::centred && !Kind::adds && sizeof(T) == 2 && Run > 1 && Warps > 2;
  using group = group_sum<Kind::centred ? 2 : 1, Warps>;
  static constexpr bool rounds = sizeof(T) == 2 && !Kind::centred;
  static constexpr int rows = Rows;
  static constexpr int max_threads = std::max(Warps, Rows) * kWarp;
  static constexpr int64_t max_width = int64_t(vector::length) * Warps;
  static constexpr int min_blocks = 64 * 1024 / (max_threads * Registers);
};

// A row's mean, as the rounded value m and what it lacks, and its 1 / standard deviation.
struct row_moments {
  float m, delta, rstd;
};

// From the sums of d = s − m and of d² over the row. The reciprocal root takes subnormal numbers
// for zero; a positive eps below 1.2e-38 must not make it infinite. Comparisons keep a NaN, fmaxf
// not.
KITTENS_DEVICE row_moments moments_of(float m, float sum, float squares, float inverse_width,
                                      float eps) {
  const float delta = sum * inverse_width;
  const float variance = fmaf(-delta, delta, squares * inverse_width);
  const float radicand = (variance < 0.0f ? 0.0f : variance) + eps;
  const float smallest = eps > 0.0f ? FLT_MIN : 0.0f;
  return {m, delta, arch::rsqrt_approx(radicand < smallest ? smallest : radicand)};
}

// s = dropout(s) + residual. `first`: the number of the slice's first element in the matrix, which
// is a multiple of a run's length unless it may be Anywhere.
template <bool Anywhere = false, class V, class R>
KITTENS_DEVICE void add_residual(V& s, const R& residual, const dropout_mask& mask, int64_t first) {
  if (!mask.drops) return add(s, s, residual);
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    float x[V::run_length], more[V::run_length], factor[V::run_length];
    s.data[c].get(x);
    residual.data[c].get(more);
    const int64_t number = first + V::first(c, arch::lane_id());
    if constexpr (Anywhere) {
      mask.factors_anywhere(factor, number);
    } else {
      mask.factors(factor, number);
    }
#pragma unroll
    for (int i = 0; i < V::run_length; ++i) x[i] = fmaf(x[i], factor[i], more[i]);
    s.data[c].set(x);
  }
}

// The row's moments; s, this warp's slice of the row, of which `columns` are there, becomes s − m.
template <class Config>
KITTENS_DEVICE row_moments take_moments(typename Config::vector& s,
                                        const typename Config::head& head,
                                        typename Config::group& add, int columns,
                                        float inverse_width, float eps) {
  if constexpr (Config::kind::centred) {
    float sums[2] = {0.0f, 0.0f}, m;
    if constexpr (Config::has_head) {
      sum(m, head);
      m = arch::mul_rounded(m, 1.0f / Config::head::length);
    } else {
      sum(sums[0], s);
      add(sums);
      m = arch::mul_rounded(sums[0], inverse_width);
    }
    sub(s, s, m);
    right_fill(s, s, columns, 0.0f);
    sum(sums[0], s);
    dot(sums[1], s, s);
    add(sums);
    return moments_of(m, sums[0], sums[1], inverse_width, eps);
  } else {
    float squares[1];
    dot(squares[0], s, s);
    add(squares);
    return moments_of(0.0f, 0.0f, squares[0], inverse_width, eps);
  }
}

// From s − m to y.
template <class Config, class V>
KITTENS_DEVICE void scale_row(V& d, const row_moments& row, const V& weight, const V& bias,
                              bool round_first) {
  if constexpr (Config::kind::centred) {
    const float shift = -row.delta * row.rstd;
    map([=](float d, float w, float b) { return fmaf(fmaf(d, row.rstd, shift), w, b); }, d, d,
        weight, bias);
  } else if (Config::rounds && round_first) {
    rv<typename Config::type, V::length, typename V::layout> rounded;
    mul(rounded, d, row.rstd);
    mul(d, rounded, weight);
  } else {
    mul(d, d, row.rstd);
    mul(d, d, weight);
  }
}

// What a warp holds of a row of p, or the part of it that starts at column `first`, `columns` long.
// Whole: as long as V, which is known when the kernel is compiled: no element is looked at singly.
template <bool Whole, class V, class T>
KITTENS_DEVICE auto part_of(T* row, int64_t first, int columns) {
  constexpr int64_t kColumns = Whole ? V::length : kDynamic;
  return gl<T, 1, 1, 1, kColumns>::vector(row + first, columns);
}

// Weight and bias of a row, or of a piece of it.
template <class Config, int Length>
struct row_parameters {
  static constexpr bool given = !std::is_void_v<typename Config::parameter_type>;
  using T = std::conditional_t<given, typename Config::parameter_type, float>;
  using vector = rv<T, Length, typename Config::layout>;
  vector weight, bias;

  // Those from column `first` on. A bias that is null has no columns: its elements are zero,
  // without a branch, behind which the loads of other pieces would wait (16384 × 8192, bf16: 139
  // µs, not 132).
  template <bool Whole>
  KITTENS_DEVICE void load(const norm_forward_params& p, int64_t first, int columns) {
    if constexpr (given) {
      kittens::load(weight,
                    part_of<Whole, vector>(static_cast<const T*>(p.weight), first, columns));
      if constexpr (Config::kind::centred) {
        kittens::load(bias, part_of<false, vector>(static_cast<const T*>(p.bias), first,
                                                   p.bias == nullptr ? 0 : columns));
      }
    } else {
      one(weight);
      zero(bias);
    }
  }
};

// dst = piece i of a row.
template <register_vector P, register_vector V>
KITTENS_DEVICE void take_piece(P& dst, const V& row, int i) {
#pragma unroll
  for (int c = 0; c < P::chunks; ++c) convert_run(dst.data[c], row.data[i * P::chunks + c]);
}

KITTENS_DEVICE void store_moments(const norm_forward_params& p, const row_moments& row, int64_t r) {
  if (p.mean != nullptr) arch::store_global(p.mean + r, row.m + row.delta);
  if (p.rstd != nullptr) arch::store_global(p.rstd + r, row.rstd);
}

// Row r, of which this is warp number `warp`. Whole: the warp has all columns that it may hold.
template <class Config, bool Whole>
KITTENS_DEVICE void norm_row(const norm_forward_params& p, const row_layout& layout, int64_t r,
                             int warp) {
  using vector = typename Config::vector;
  using piece = typename Config::piece;
  using T = typename Config::type;
  using R = typename Config::residual_type;
  constexpr int kPieces = vector::length / piece::length;
  using sum_shared = typename Config::group::shared;
  typename Config::group add{*reinterpret_cast<sum_shared*>(arch::dynamic_shared()), warp,
                             layout.warps, 1};
  const int64_t first = int64_t(warp) * vector::length;
  const int columns = int(p.width - first);

  const T* x_row = static_cast<const T*>(p.x) + r * p.x_rows.outer;
  typename Config::head head;
  if constexpr (Config::has_head) load(head, part_of<true, typename Config::head>(x_row, 0, 0));
  typename Config::template row_of<T> x;
  load_evict_last(x, part_of<Whole, vector>(x_row, first, columns));
  row_parameters<Config, vector::length> parameters;
  if constexpr (Config::early) parameters.template load<Whole>(p, first, columns);
  vector d;
  if constexpr (Config::kind::adds) {
    typename Config::template row_of<R> residual;
    const R* residual_row = static_cast<const R*>(p.residual) + r * p.residual_stride;
    load_evict_last(residual, part_of<Whole, vector>(residual_row, first, columns));
    copy(d, x);
    add_residual(d, residual, dropout_mask(p.dropout), r * p.width + first);
    store(part_of<Whole, vector>(static_cast<R*>(p.sum) + r * p.width, first, columns), d);
  } else {
    copy(d, x);
  }
  const row_moments row = take_moments<Config>(d, head, add, Whole ? vector::length : columns,
                                               layout.inverse_width, p.eps);
  if (warp == 0 && arch::lane_id() == 0) store_moments(p, row, r);
  T* y_row = static_cast<T*>(p.y) + r * p.width;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int64_t here = first + i * piece::length;
    const int left = columns - i * piece::length;
    piece y, weight, bias;
    take_piece(y, d, i);
    if constexpr (Config::early) {
      take_piece(weight, parameters.weight, i);
      if constexpr (Config::kind::centred) take_piece(bias, parameters.bias, i);
    } else {
      row_parameters<Config, piece::length> late;
      late.template load<Whole>(p, here, left);
      copy(weight, late.weight);
      if constexpr (Config::kind::centred) copy(bias, late.bias);
    }
    if (!Config::kind::centred && p.weight_offset != 0.0f) {
      kittens::add(weight, weight, p.weight_offset);
    }
    scale_row<Config>(y, row, weight, bias, p.round_first);
    store(part_of<Whole, piece>(y_row, here, left), y);
  }
}

// Grid: a block for each row, or, of rows of one warp, for every Config::rows.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads,
                                  arch::min_blocks<Config::max_threads, Config::min_blocks>)
    norm_forward(const __grid_constant__ norm_forward_params p, row_layout layout) {
  begin_dependent_grid();
  const bool alone = Config::rows > 1 && layout.warps == 1;
  const int warp = alone ? 0 : arch::warp_id();  // of the row
  const int64_t r = alone ? arch::block_x() * Config::rows + arch::warp_id() : arch::block_x();
  if (Config::rows > 1 && r >= p.rows) return;
  if (p.width == int64_t(layout.warps) * Config::vector::length) {
    norm_row<Config, true>(p, layout, r, warp);
  } else {
    norm_row<Config, false>(p, layout, r, warp);
  }
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
