// layer_norm, backward, with x̂ = (x − mean) · rstd and g = dy · weight, per row:
//
//   dx = rstd · (g − mean(g) − x̂ · mean(g · x̂)),   dweight = Σ_rows dy · x̂,   dbias = Σ_rows dy
//
//   dy, x [rows, width], mean, rstd [rows] → dx [rows, width], dweight, dbias [width]
//
// Memory-bound: dy and x are read once, dx is written once. Persistent blocks walk over the rows
// with a stride; each thread keeps the running sums of its columns' dweight and dbias in registers.
// The next row's dy and x are loaded before this row's sums are taken.
//
//   block           groups × warps; a group works on one row, a warp on 512 of its columns
//   per row         one sum over the group's warps (three numbers), one barrier
//   at the end      the groups' dweight and dbias are added in order, through shared memory, into
//                   one row of `partial` [2, partial_rows, width] a block, and those in order by
//                   layer_norm_backward_reduce: the same bits on every run
//   width > 8192    layer_norm_backward_dx_wide reads each row twice, a block a row;
//                   layer_norm_backward_sums_wide makes the partial sums, a warp per 512 columns
//
// Numerics: the mean as saved is rounded to float. What it lacks, delta = mean(x − mean), corrects
// x̂ where a row is read as a whole.
#pragma once

#include "kernels/norm/layer_norm.h"
#include "kernels/norm/row.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

template <class T, int Run>
struct layer_norm_backward_config {
  using type = T;
  static constexpr int length = layer_norm_backward_shape::kWarpColumns;
  using vector = rv<float, length, ducks::rv_layout::runs<Run>>;
  // As loaded: packed pairs, or floats where elements come one by one (a 16-bit element alone would
  // take a register all the same, and its float another).
  using loaded = rv<std::conditional_t<(Run > 1), T, float>, length, ducks::rv_layout::runs<Run>>;
  static constexpr int max_threads = 512;
  // The next row is loaded early where it fits in the 128 registers a thread has: two bytes an
  // element, and one address a run. (float, and single elements, would spill 40 … 72 bytes.)
  static constexpr bool prefetch = sizeof(T) == 2 && Run > 1;
};

// One row on its way: what a warp has loaded of it.
template <class Config>
struct loaded_row {
  typename Config::loaded dy, x;
  float mean, rstd;

  KITTENS_DEVICE void load_from(const layer_norm_backward_params& p, int64_t r, int64_t slice) {
    using T = typename Config::type;
    load(dy, matrix<const T>(p.dy, p.rows, p.width, p.dy_stride), {.r = r, .c = slice});
    load(x, matrix<const T>(p.x, p.rows, p.width, p.x_stride), {.r = r, .c = slice});
    mean = arch::load_global(p.mean + r);
    rstd = arch::load_global(p.rstd + r);
  }
  // d = x − mean, zero past the last column.
  KITTENS_DEVICE void centre(typename Config::vector& d, int columns) const {
    sub(d, x, mean);
    right_fill(d, d, columns, 0.0f);
  }
};

// The three sums of a row from which dx follows, over this warp's columns: Σ d, Σ g, Σ g·d.
template <class V, class DY>
KITTENS_DEVICE void row_sums(float (&sums)[3], const V& d, const DY& dy, const V& weight) {
  V g;
  mul(g, dy, weight);
  sum(sums[0], d);
  sum(sums[1], g);
  dot(sums[2], g, d);
}

// From the sums over the whole row to dx; d becomes x̂.
template <class V, class DY>
KITTENS_DEVICE void row_gradient(V& dx, V& d, const DY& dy, const V& weight, const float (&sums)[3],
                                 float rstd, float inverse_width) {
  const float delta = sums[0] * inverse_width, mean_g = sums[1] * inverse_width;
  const float mean_gx = rstd * (sums[2] * inverse_width - delta * mean_g);  // mean(g · x̂)
  const float shift = -delta * rstd;
  map([=](float d) { return fmaf(d, rstd, shift); }, d, d);
  const auto gradient = [=](float dy, float w, float x_hat) {
    return rstd * fmaf(x_hat, -mean_gx, fmaf(dy, w, -mean_g));
  };
  map(gradient, dx, dy, weight, d);
}

// What a block's groups leave in shared memory for its first group to add up, when there are
// several.
template <class Config>
struct group_sums {
  sv<float, Config::length> dweight, dbias;  // of one warp
};

// Adds the groups' vectors in order; the first group writes them as one row of `partial`. Every
// thread of the block takes part.
template <class Config>
KITTENS_DEVICE void store_partial(const layer_norm_backward_params& p,
                                  typename Config::vector& dweight, typename Config::vector& dbias,
                                  group_sums<Config>* shared, int groups, int warps) {
  const int group = arch::warp_id() / warps, warp = arch::warp_id() % warps;
  if (group > 0) {
    store(shared[arch::warp_id()].dweight, dweight);
    store(shared[arch::warp_id()].dbias, dbias);
  }
  if (groups > 1) arch::sync_block();
  if (group > 0) return;
  for (int other = 1; other < groups; ++other) {
    typename Config::vector v;
    load(v, shared[other * warps + warp].dweight);
    add(dweight, dweight, v);
    load(v, shared[other * warps + warp].dbias);
    add(dbias, dbias, v);
  }
  const auto partial = matrix<float>(p.partial, 2 * p.partial_rows, p.width, p.width);
  store(partial, dweight, {.r = arch::block_x(), .c = warp});
  store(partial, dbias, {.r = p.partial_rows + arch::block_x(), .c = warp});
}

// Grid: partial_rows blocks, whether or not a weight gradient is wanted.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    layer_norm_backward(const __grid_constant__ layer_norm_backward_params p, row_layout layout) {
  using vector = typename Config::vector;
  using T = typename Config::type;
  const int warps = layout.warps, groups = arch::block_threads() / (warps * kWarp);
  const int group = arch::warp_id() / warps, warp = arch::warp_id() % warps;
  const int columns = int(p.width) - warp * vector::length;  // from this warp's first on
  const int64_t stride = int64_t(arch::grid_x()) * groups;
  const auto dx = matrix<T>(p.dx, p.rows, p.width, p.width);

  using sum_shared = group_sum<3>::shared;
  auto* shared = reinterpret_cast<sum_shared*>(arch::dynamic_shared());
  group_sum<3> add{shared[group], warp, warps, 1 + group};

  // The weights stay in L1, not in registers: those hold the next row instead.
  const auto load_weight = [&](vector& weight) {
    load_parameter<T>(weight, p.weight, p.weight_type, p.width, warp, 1.0f);
  };
  vector dweight, dbias;
  zero(dweight);
  zero(dbias);

  loaded_row<Config> row, next;
  int64_t r = int64_t(arch::block_x()) * groups + group;
  if (r < p.rows) next.load_from(p, r, warp);
  for (; r < p.rows; r += stride) {
    row = next;
    if (Config::prefetch && r + stride < p.rows) next.load_from(p, r + stride, warp);

    vector weight, d;
    load_weight(weight);
    row.centre(d, columns);
    float sums[3];
    row_sums(sums, d, row.dy, weight);
    add(sums);

    vector gradient;
    load_weight(weight);
    row_gradient(gradient, d, row.dy, weight, sums, row.rstd, layout.inverse_width);
    if (p.dx != nullptr) store(dx, gradient, {.r = r, .c = warp});
    fma(dweight, row.dy, d, dweight);
    kittens::add(dbias, dbias, row.dy);
    if (!Config::prefetch && r + stride < p.rows) next.load_from(p, r + stride, warp);
  }
  if (p.partial == nullptr) return;
  store_partial<Config>(p, dweight, dbias, reinterpret_cast<group_sums<Config>*>(shared + groups),
                        groups, warps);
}

// Grid: one block a row, which walks over the row's slices twice.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    layer_norm_backward_dx_wide(const __grid_constant__ layer_norm_backward_params p,
                                row_layout layout) {
  using vector = typename Config::vector;
  using T = typename Config::type;
  const int warps = layout.warps, warp = arch::warp_id();
  const int64_t slices = (p.width + vector::length - 1) / vector::length;
  const int64_t r = arch::block_x();
  group_sum<3> add{*reinterpret_cast<group_sum<3>::shared*>(arch::dynamic_shared()), warp, warps,
                   1};

  loaded_row<Config> row;
  vector d, weight;
  const auto load_slice = [&](int64_t slice) {
    row.load_from(p, r, slice);
    row.centre(d, int(p.width - slice * vector::length));
    load_parameter<T>(weight, p.weight, p.weight_type, p.width, slice, 1.0f);
  };
  float sums[3] = {0.0f, 0.0f, 0.0f};
  for (int64_t slice = warp; slice < slices; slice += warps) {
    load_slice(slice);
    float here[3];
    row_sums(here, d, row.dy, weight);
    for (int i = 0; i < 3; ++i) sums[i] += here[i];
  }
  add(sums);
  for (int64_t slice = warp; slice < slices; slice += warps) {
    load_slice(slice);
    vector gradient;
    row_gradient(gradient, d, row.dy, weight, sums, row.rstd, layout.inverse_width);
    store(matrix<T>(p.dx, p.rows, p.width, p.width), gradient, {.r = r, .c = slice});
  }
}

// Grid: (slices / warps, partial_rows). A warp adds its 512 columns over every partial_rows-th row.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads)
    layer_norm_backward_sums_wide(const __grid_constant__ layer_norm_backward_params p) {
  using vector = typename Config::vector;
  const int64_t slice =
      int64_t(arch::block_x()) * (arch::block_threads() / kWarp) + arch::warp_id();
  const int columns = int(p.width - slice * vector::length);
  if (columns <= 0) return;

  vector dweight, dbias, d;
  zero(dweight);
  zero(dbias);
  for (int64_t r = arch::block_y(); r < p.rows; r += p.partial_rows) {
    loaded_row<Config> row;
    row.load_from(p, r, slice);
    row.centre(d, columns);
    mul(d, d, row.rstd);
    fma(dweight, row.dy, d, dweight);
    add(dbias, dbias, row.dy);
  }
  const auto partial = matrix<float>(p.partial, 2 * p.partial_rows, p.width, p.width);
  store(partial, dweight, {.r = arch::block_y(), .c = slice});
  store(partial, dbias, {.r = p.partial_rows + arch::block_y(), .c = slice});
}

// Adds the partial sums, in order: dweight (block_y 0) and dbias (block_y 1).
//
// Grid: (width / 32, 2); warp w of the block adds rows w, w + warps, …; warp 0 adds the warps.
struct layer_norm_reduce_config {
  using vector = rv<float, kWarp>;
  static constexpr int warps = 16;
};

template <class Config>
__global__ void __launch_bounds__(Config::warps* kWarp)
    layer_norm_backward_reduce(const __grid_constant__ layer_norm_backward_params p) {
  using vector = typename Config::vector;
  const int which = arch::block_y(), warp = arch::warp_id(), lane = arch::lane_id();
  void* out = which == 0 ? p.dweight : p.dbias;
  if (out == nullptr) return;
  const auto partial = matrix<const float>(p.partial, 2 * p.partial_rows, p.width, p.width);

  vector total, row;
  zero(total);
  for (int64_t r = warp; r < p.partial_rows; r += Config::warps) {
    load(row, partial, {.r = which * p.partial_rows + r, .c = arch::block_x()});
    add(total, total, row);
  }
  auto* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  arch::store_shared(&shared[warp * kWarp + lane], total.data[0].words[0]);
  arch::sync_block();
  if (warp != 0) return;
  for (int w = 1; w < Config::warps; ++w) {
    total.data[0].words[0] += arch::load_shared(&shared[w * kWarp + lane]);
  }
  const auto store_as = [&]<class T>(T*) {
    store(matrix<T>(out, 1, p.width, 0), total, {.c = arch::block_x()});
  };
  switch (which == 0 ? p.weight_type : p.bias_type) {
    case dtype::float32: return store_as(static_cast<float*>(nullptr));
    case dtype::float16: return store_as(static_cast<half*>(nullptr));
    case dtype::bfloat16: return store_as(static_cast<bf16*>(nullptr));
  }
}

}  // namespace thunderkittens::inline KITTENS_TARGET
