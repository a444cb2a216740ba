// The norms, forward, per row s of x, or of dropout(x) + residual:
//
//   y = (s − mean) · rstd · weight + bias,     rstd = 1 / sqrt(var + eps)         centred kinds
//   y = s · rstd · (weight + weight_offset),   rstd = 1 / sqrt(mean(s²) + eps)    the others
//
//   x, residual [rows, width] → y, s [rows, width], mean [rows], rstd [rows]
//
// Memory-bound: x and residual are read once, y and s written once. All loads of a row are on their
// way before the first is used, and the row stays in registers until it is stored; while one block
// waits, the others of its multiprocessor load. The weights come anew for each row, from L1.
//
//   width ≤ 256:    norm_forward_narrow.cuh: a few lanes a row
//   width ≤ 16384:  one block a row, each warp holds 1024 columns; one barrier a sum, none up to
//                   1024 columns
//   above:          norm_forward_wide reads the row two or three times, from L2 after the first;
//                   so are single elements above 8192 columns, and parameters of different types
//
// Numerics: the variance is taken about the mean rounded to float, m, and both are corrected by the
// mean of what is left, delta = mean(s − m):  var = mean((s − m)²) − delta². So s − m − delta is
// right even where |mean| is 10⁶ standard deviations. (s − m is exact there; as an fma of the
// product behind m it would not be, and a row of equal values not zero.) The statistics of a sum
// are those of the sum in float; its rounding is the output's alone.
#pragma once

#include <cfloat>

#include "kernels/norm/dropout.cuh"
#include "kernels/norm/norm.h"
#include "kernels/norm/row.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

// Kind: a member of the family. T: element type of x and y. R: of residual and sum, or void. W: of
// weight and bias (not used by norm_forward_wide). Run: elements a lane moves at once (16 bytes, or
// 1 where rows are not aligned). Elements: how many of the row a lane holds. Warps: at most, of a
// block.
template <class Kind, class T, class R, class W, int Run, int Elements, int Warps>
struct norm_forward_config {
  using kind = Kind;
  using type = T;
  using residual_type = std::conditional_t<Kind::adds, R, T>;
  using parameter_type = W;
  using layout = ducks::rv_layout::runs<Run>;
  template <class E>
  using row_of = rv<E, kWarp * Elements, layout>;
  using vector = row_of<float>;
  // What of the row is multiplied and stored at a time: all of it where the registers hold all of
  // its weights, two to a register, so that they are on their way together, else 8 elements a lane.
  static constexpr bool whole = sizeof(W) == 2 && Run > 1 && Warps <= 8;
  using piece = rv<float, kWarp*(whole ? Elements : 8), layout>;
  // Whether the weights are on their way with the row: where registers are left for them.
  static constexpr bool early = whole && !Kind::centred && !Kind::adds;
  static constexpr int sums = Kind::centred ? 2 : 1;
  static constexpr bool rounds = sizeof(T) == 2 && !Kind::centred;
  static constexpr int max_threads = Warps * kWarp;
  static constexpr int64_t max_width = int64_t(vector::length) * Warps;
  // Three blocks of 8 warps leave 80 registers a thread: too few for dropout's generator beside two
  // rows of floats or of single elements. With 16 warps it is two blocks, 64 registers, or one.
  static constexpr bool large = Kind::adds && (sizeof(residual_type) == 4 || Run == 1);
  static constexpr int min_blocks = Warps > 8 ? (Kind::adds ? 1 : 2) : large ? 2 : 3;
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

// s = dropout(s) + residual. `first`: the number of the slice's first element in the matrix.
template <class V, class R>
KITTENS_DEVICE void add_residual(V& s, const R& residual, const dropout_mask& mask, int64_t first) {
  if (!mask.drops) return add(s, s, residual);
#pragma unroll
  for (int c = 0; c < V::chunks; ++c) {
    float x[V::run_length], more[V::run_length], factor[V::run_length];
    s.data[c].get(x);
    residual.data[c].get(more);
    mask.factors(factor, first + V::first(c, arch::lane_id()));
#pragma unroll
    for (int i = 0; i < V::run_length; ++i) x[i] = fmaf(x[i], factor[i], more[i]);
    s.data[c].set(x);
  }
}

// The row's moments; s, this warp's slice of the row, of which `columns` are there, becomes s − m.
template <class Config>
KITTENS_DEVICE row_moments take_moments(typename Config::vector& s, group_sum<Config::sums>& add,
                                        int columns, float inverse_width, float eps) {
  if constexpr (Config::kind::centred) {
    float sums[2] = {0.0f, 0.0f};
    sum(sums[0], s);
    add(sums);
    const float m = arch::mul_rounded(sums[0], inverse_width);
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

// A lane's part of weight and bias; what is null is ones and zeros.
template <class Config>
struct row_parameters {
  using piece = typename Config::piece;
  using T = typename Config::parameter_type;
  using loaded = rv<T, piece::length, typename Config::layout>;
  loaded weight, bias;

  // Piece number `at` of the row.
  KITTENS_DEVICE void load(const norm_forward_params& p, int64_t at) {
    load_one(weight, p.weight, p.width, at, 1.0f);
    if constexpr (Config::kind::centred) load_one(bias, p.bias, p.width, at, 0.0f);
  }
  KITTENS_DEVICE void scale(piece& d, const row_moments& row, const norm_forward_params& p) const {
    piece w, b;
    copy(w, weight);
    if constexpr (Config::kind::centred) {
      copy(b, bias);
    } else {
      if (p.weight_offset != 0.0f) add(w, w, p.weight_offset);
    }
    scale_row<Config>(d, row, w, b, p.round_first);
  }

 private:
  KITTENS_DEVICE static void load_one(loaded& dst, const void* data, int64_t width, int64_t at,
                                      float otherwise) {
    if (data == nullptr) return fill(dst, otherwise);
    kittens::load(dst, gl<const T, 1, 1, 1>::vector(static_cast<const T*>(data), width), {.c = at});
  }
};

KITTENS_DEVICE void store_moments(const norm_forward_params& p, const row_moments& row, int64_t r) {
  if (p.mean != nullptr) arch::store_global(p.mean + r, row.m + row.delta);
  if (p.rstd != nullptr) arch::store_global(p.rstd + r, row.rstd);
}

// Grid: one block a row.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, Config::min_blocks)
    norm_forward(const __grid_constant__ norm_forward_params p, row_layout layout) {
  using vector = typename Config::vector;
  using piece = typename Config::piece;
  using T = typename Config::type;
  using R = typename Config::residual_type;
  constexpr int kPieces = vector::length / piece::length;
  const int warp = arch::warp_id();
  const int64_t r = arch::block_x();
  using sum_shared = typename group_sum<Config::sums>::shared;
  group_sum<Config::sums> add{*reinterpret_cast<sum_shared*>(arch::dynamic_shared()), warp,
                              layout.warps, 1};

  typename Config::template row_of<T> x;
  load(x, matrix<const T>(p.x, p.rows, p.width, p.x_rows.outer), {.r = r, .c = warp});
  row_parameters<Config> parameters;
  if constexpr (Config::early) parameters.load(p, warp);
  vector d;
  if constexpr (Config::kind::adds) {
    typename Config::template row_of<R> residual;
    load(residual, matrix<const R>(p.residual, p.rows, p.width, p.residual_stride),
         {.r = r, .c = warp});
    copy(d, x);
    add_residual(d, residual, dropout_mask(p.dropout), r * p.width + warp * vector::length);
    store(matrix<R>(p.sum, p.rows, p.width, p.width), d, {.r = r, .c = warp});
  } else {
    copy(d, x);
  }
  const row_moments row = take_moments<Config>(d, add, int(p.width) - warp * vector::length,
                                               layout.inverse_width, p.eps);
  if (arch::thread_id() == 0) store_moments(p, row, r);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int64_t at = warp * kPieces + i;
    if constexpr (!Config::early) parameters.load(p, at);
    piece part;
#pragma unroll
    for (int c = 0; c < piece::chunks; ++c) part.data[c] = d.data[i * piece::chunks + c];
    parameters.scale(part, row, p);
    store(matrix<T>(p.y, p.rows, p.width, p.width), part, {.r = r, .c = at});
  }
}

// Grid: one block a row, which walks over the row's slices once for each sum, and once more.
//
// The bound's 1 lets ptxas take 68 registers; without it, it spills 8 bytes to stay at 64
// (CUDA 13.0).
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, 1)
    norm_forward_wide(const __grid_constant__ norm_forward_params p, row_layout layout) {
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

}  // namespace thunderkittens::inline KITTENS_TARGET
