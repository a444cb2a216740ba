// layer_norm, forward:  y = (x − mean) · rstd · weight + bias,  rstd = 1 / sqrt(var + eps).
//
//   x [rows, width] → y [rows, width], mean [rows], rstd [rows]
//
// Memory-bound: x is read once and y written once. Persistent blocks walk over the rows with a
// stride; the weights stay in registers, and so does the row between its sums and its output. The
// next two rows are on their way to shared memory meanwhile.
//
//   width ≤ 1024:   one warp a row, four rows a block, no barrier
//   width ≤ 16384:  one block a row, each warp holds 1024 columns; one barrier a sum
//   above:          layer_norm_forward_wide reads the row three times, from L2 after the first
//
// Numerics: the variance is taken about the mean rounded to float, m, and both are corrected by the
// mean of what is left, delta = mean(x − m):  var = mean((x − m)²) − delta². So x − m − delta is
// right even where |mean| is 10⁶ standard deviations. (x − m is exact there; as an fma of the
// product behind m it would not be, and a row of equal values not zero.)
#pragma once

#include <cfloat>

#include "kernels/norm/layer_norm.h"
#include "kernels/norm/row.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

// T: element type of x and y. Run: elements a lane moves at once (16 bytes, or 1 where rows are not
// aligned). Elements: how many of the row a lane holds. Rows: of a block; several have a warp each.
template <class T, int Run, int Elements, int Rows>
struct layer_norm_forward_config {
  using type = T;
  using vector = rv<float, kWarp * Elements, ducks::rv_layout::runs<Run>>;
  using stream = row_stream<T, vector, 3>;
  static constexpr int rows = Rows;
  static constexpr int max_warps = Rows == 1 ? 16 : Rows;
  static constexpr int max_threads = max_warps * kWarp;
  static constexpr int64_t max_width = int64_t(vector::length) * (Rows == 1 ? max_warps : 1);
  // What the registers allow: 128 a thread (168 with four rows) with 32 elements, 64 with 8.
  static constexpr int threads_per_multiprocessor = Elements == 8 ? 1024 : Rows == 1 ? 512 : 384;
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

// From the sums of d = x − m and of d² over the row. The reciprocal root takes subnormal numbers
// for zero; a positive eps below 1.2e-38 must not make it infinite. Comparisons keep a NaN, fmaxf
// not.
KITTENS_DEVICE row_moments moments_of(float m, const float (&sums)[2], float inverse_width,
                                      float eps) {
  const float delta = sums[0] * inverse_width;
  const float variance = fmaf(-delta, delta, sums[1] * inverse_width);
  const float radicand = (variance < 0.0f ? 0.0f : variance) + eps;
  const float smallest = eps > 0.0f ? FLT_MIN : 0.0f;
  return {m, delta, arch::rsqrt_approx(radicand < smallest ? smallest : radicand)};
}

template <class V>
KITTENS_DEVICE void scale_row(V& d, const row_moments& row, const V& weight, const V& bias) {
  const float shift = -row.delta * row.rstd;
  map([=](float d, float w, float b) { return fmaf(fmaf(d, row.rstd, shift), w, b); }, d, d, weight,
      bias);
}

KITTENS_DEVICE void store_moments(const layer_norm_forward_params& p, const row_moments& row,
                                  int64_t r) {
  if (p.mean != nullptr) arch::store_global(p.mean + r, row.m + row.delta);
  if (p.rstd != nullptr) arch::store_global(p.rstd + r, row.rstd);
}

// Grid: any number of blocks.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, Config::min_blocks)
    layer_norm_forward(const __grid_constant__ layer_norm_forward_params p, row_layout layout) {
  using vector = typename Config::vector;
  using T = typename Config::type;
  const int warp = Config::rows == 1 ? arch::warp_id() : 0;
  const int64_t stride = int64_t(arch::grid_x()) * Config::rows;
  int64_t r = int64_t(arch::block_x()) * Config::rows + (Config::rows == 1 ? 0 : arch::warp_id());

  auto* shared = reinterpret_cast<group_sum<2>::shared*>(arch::dynamic_shared());
  group_sum<2> add{*shared, warp, layout.warps, 1};
  auto* slots = reinterpret_cast<uint8_t*>(shared + 1);
  typename Config::stream rows(matrix<const T>(p.x, p.rows, p.width, p.x_stride),
                               slots + arch::warp_id() * Config::stream::kSharedBytes, r, stride,
                               warp);
  const auto y = matrix<T>(p.y, p.rows, p.width, p.width);
  vector weight, bias;
  load_parameter<T>(weight, p.weight, p.weight_type, p.width, warp, 1.0f);
  load_parameter<T>(bias, p.bias, p.bias_type, p.width, warp, 0.0f);

  for (; r < p.rows; r += stride) {
    vector d;
    rows.next(d);
    float sums[2] = {0.0f, 0.0f};
    sum(sums[0], d);
    add(sums);
    const float m = arch::mul_rounded(sums[0], layout.inverse_width);

    sub(d, d, m);
    right_fill(d, d, int(p.width) - warp * vector::length, 0.0f);
    sum(sums[0], d);
    dot(sums[1], d, d);
    add(sums);
    const row_moments row = moments_of(m, sums, layout.inverse_width, p.eps);

    scale_row(d, row, weight, bias);
    store(y, d, {.r = r, .c = warp});
    if (warp == 0 && arch::lane_id() == 0) store_moments(p, row, r);
  }
}

// Grid: one block a row, which walks over the row's slices three times.
//
// The bound's 1 lets ptxas take 68 registers; without it, it spills 8 bytes to stay at 64
// (CUDA 13.0).
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, 1)
    layer_norm_forward_wide(const __grid_constant__ layer_norm_forward_params p,
                            row_layout layout) {
  using vector = typename Config::vector;
  using T = typename Config::type;
  const int warps = layout.warps, warp = arch::warp_id();
  const int64_t r = arch::block_x();
  const int64_t slices = (p.width + vector::length - 1) / vector::length;
  const auto x = matrix<const T>(p.x, p.rows, p.width, p.x_stride);

  group_sum<2> add{*reinterpret_cast<group_sum<2>::shared*>(arch::dynamic_shared()), warp, warps,
                   1};

  vector d;
  float sums[2] = {0.0f, 0.0f};
  for (int64_t slice = warp; slice < slices; slice += warps) {
    load(d, x, {.r = r, .c = slice});
    float here;
    sum(here, d);
    sums[0] += here;
  }
  add(sums);
  const float m = arch::mul_rounded(sums[0], layout.inverse_width);

  const auto load_centred = [&](int64_t slice) {
    load(d, x, {.r = r, .c = slice});
    sub(d, d, m);
    right_fill(d, d, int(p.width - slice * vector::length), 0.0f);
  };
  sums[0] = sums[1] = 0.0f;
  for (int64_t slice = warp; slice < slices; slice += warps) {
    load_centred(slice);
    float here[2];
    sum(here[0], d);
    dot(here[1], d, d);
    sums[0] += here[0];
    sums[1] += here[1];
  }
  add(sums);
  const row_moments row = moments_of(m, sums, layout.inverse_width, p.eps);

  for (int64_t slice = warp; slice < slices; slice += warps) {
    load_centred(slice);
    vector weight, bias;
    load_parameter<T>(weight, p.weight, p.weight_type, p.width, slice, 1.0f);
    load_parameter<T>(bias, p.bias, p.bias_type, p.width, slice, 0.0f);
    scale_row(d, row, weight, bias);
    store(matrix<T>(p.y, p.rows, p.width, p.width), d, {.r = r, .c = slice});
  }
  if (arch::thread_id() == 0) store_moments(p, row, r);
}

}  // namespace thunderkittens::inline KITTENS_TARGET
