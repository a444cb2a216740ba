// The norms, forward, per row s of x, or of dropout(x) + residual:
//
//   y = (s − mean) · rstd · weight + bias,     rstd = 1 / sqrt(var + eps)         centred kinds
//   y = s · rstd · (weight + weight_offset),   rstd = 1 / sqrt(mean(s²) + eps)    the others
//
//   x, residual [rows, width] → y, s [rows, width], mean [rows], rstd [rows]
//
// Memory-bound: x and residual are read once, y and s written once. Persistent blocks walk over the
// rows with a stride; the weights stay in registers, and so does the row between its sums and its
// output. The next rows are on their way to shared memory meanwhile.
//
//   width ≤ 256:    norm_forward_narrow.cuh: a few lanes a row
//   width ≤ 1024:   one warp a row, four rows a block, no barrier
//   width ≤ 16384:  one block a row, each warp holds 1024 columns; one barrier a sum
//   above:          norm_forward_wide reads the row two or three times, from L2 after the first
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

// Kind: a member of the family. T: element type of x and y. R: of residual and sum, or void. Run:
// elements a lane moves at once (16 bytes, or 1 where rows are not aligned). Elements: how many of
// the row a lane holds. Rows: of a block; several have a warp each.
template <class Kind, class T, class R, int Run, int Elements, int Rows>
struct norm_forward_config {
  using kind = Kind;
  using type = T;
  using residual_type = std::conditional_t<Kind::adds, R, T>;
  using vector = rv<float, kWarp * Elements, ducks::rv_layout::runs<Run>>;
  using residual_vector = rv<residual_type, vector::length, typename vector::layout>;
  // Two slots of two rows each move as much at a time as three slots of one.
  using stream = row_stream<T, R, vector, Kind::adds ? 2 : 3>;
  // What is loaded anew for each row, where the registers are needed for dropout.
  static constexpr bool keeps_bias = !Kind::adds;
  // Of two rows whose elements come one by one, the registers hold too little.
  static constexpr bool in_registers = Run > 1 || !Kind::adds;
  static constexpr int sums = Kind::centred ? 2 : 1;
  static constexpr bool rounds = sizeof(T) == 2 && !Kind::centred;
  // In float, two slots of both rows are 16 bytes an element, of the 227 KB of a block.
  static constexpr bool large = Kind::adds && sizeof(T) == 4;
  static constexpr int rows = Rows;
  static constexpr int max_warps = Rows == 1 ? (large ? 12 : 16) : Rows;
  static constexpr int max_threads = max_warps * kWarp;
  static constexpr int64_t max_width = int64_t(vector::length) * (Rows == 1 ? max_warps : 1);
  // What the registers allow: 128 a thread (168 with four rows); without a bias 96 do.
  static constexpr bool small = !Kind::centred && !Kind::adds;
  static constexpr int threads_per_multiprocessor = Rows == 1 ? (small   ? 640
                                                                 : large ? 384
                                                                         : 512)
                                                              : (small ? 512 : 384);
  static constexpr int min_blocks = threads_per_multiprocessor / max_threads;

  // How many blocks to launch for rows of `threads` threads. One wave of resident blocks is best
  // where rows are short, or where one block fills a multiprocessor; else eight, which even out
  // what the multiprocessors get of the memory (16384 × 4096 bf16: 78.1 µs with one wave, 74.1 with
  // 8).
  static constexpr int64_t max_blocks(int64_t threads, int64_t multiprocessors) {
    const int64_t resident = threads_per_multiprocessor / threads;
    if (resident <= 1) return multiprocessors;
    return (Rows == 1 ? 8 : 1) * resident * multiprocessors;
  }
  static_assert(max_warps <= kMaxWarps);
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

template <class Config>
KITTENS_DEVICE void load_weight(typename Config::vector& weight, const norm_forward_params& p,
                                int64_t slice) {
  load_weight<typename Config::kind, typename Config::type>(weight, p.weight, p.weight_type,
                                                            p.width, slice, p.weight_offset);
}
template <class Config>
KITTENS_DEVICE void load_bias(typename Config::vector& bias, const norm_forward_params& p,
                              int64_t slice) {
  if constexpr (Config::kind::centred) {
    load_parameter<typename Config::type>(bias, p.bias, p.bias_type, p.width, slice, 0.0f);
  } else {
    zero(bias);
  }
}

KITTENS_DEVICE void store_moments(const norm_forward_params& p, const row_moments& row, int64_t r) {
  if (p.mean != nullptr) arch::store_global(p.mean + r, row.m + row.delta);
  if (p.rstd != nullptr) arch::store_global(p.rstd + r, row.rstd);
}

// Grid: any number of blocks.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, Config::min_blocks)
    norm_forward(const __grid_constant__ norm_forward_params p, row_layout layout) {
  using vector = typename Config::vector;
  using T = typename Config::type;
  using R = typename Config::residual_type;
  const int warp = Config::rows == 1 ? arch::warp_id() : 0;
  const int64_t stride = int64_t(arch::grid_x()) * Config::rows;
  int64_t r = int64_t(arch::block_x()) * Config::rows + (Config::rows == 1 ? 0 : arch::warp_id());

  using sum_shared = typename group_sum<Config::sums>::shared;
  auto* shared = reinterpret_cast<sum_shared*>(arch::dynamic_shared());
  group_sum<Config::sums> add{*shared, warp, layout.warps, 1};
  auto* slots = reinterpret_cast<uint8_t*>(shared + 1);
  typename Config::stream rows(matrix<const T>(p.x, p.rows, p.width, p.x_rows.outer),
                               matrix<const R>(p.residual, p.rows, p.width, p.residual_stride),
                               slots + arch::warp_id() * Config::stream::kSharedBytes, r, stride,
                               warp);
  rows.start();
  const auto y = matrix<T>(p.y, p.rows, p.width, p.width);
  const dropout_mask mask(p.dropout);
  vector weight, bias;
  load_weight<Config>(weight, p, warp);
  if constexpr (Config::keeps_bias) load_bias<Config>(bias, p, warp);

  for (; r < p.rows; r += stride) {
    vector d;
    typename Config::residual_vector residual;
    rows.read(d, residual);
    if constexpr (Config::kind::adds) {
      add_residual(d, residual, mask, r * p.width + warp * vector::length);
    }
    rows.advance();
    if constexpr (Config::kind::adds) {
      store(matrix<R>(p.sum, p.rows, p.width, p.width), d, {.r = r, .c = warp});
    }
    const row_moments row = take_moments<Config>(d, add, int(p.width) - warp * vector::length,
                                                 layout.inverse_width, p.eps);
    if constexpr (!Config::keeps_bias) load_bias<Config>(bias, p, warp);
    scale_row<Config>(d, row, weight, bias, p.round_first);
    store(y, d, {.r = r, .c = warp});
    if (warp == 0 && arch::lane_id() == 0) store_moments(p, row, r);
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
      typename Config::residual_vector residual;
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
    load_weight<Config>(weight, p, slice);
    load_bias<Config>(bias, p, slice);
    scale_row<Config>(d, row, weight, bias, p.round_first);
    store(matrix<T>(p.y, p.rows, p.width, p.width), d, {.r = r, .c = slice});
  }
  if (arch::thread_id() == 0) store_moments(p, row, r);
}

}  // namespace thunderkittens::inline KITTENS_TARGET
