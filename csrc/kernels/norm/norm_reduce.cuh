// The end of the norms' backward: the partial sums of dweight and dbias, one row a block, added up.
#pragma once

#include "kernels/norm/norm.h"
#include "kernels/norm/row.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

// One of the two gradients that are sums over all rows.
struct parameter_gradient {
  void* data;  // [width] of `type`, or null: not wanted
  dtype type;

  KITTENS_DEVICE parameter_gradient(const norm_backward_params& p, int which)
      : data(which == 0 ? p.dweight : p.dbias), type(which == 0 ? p.weight_type : p.bias_type) {}

  // Vector number c of it, if it is wanted.
  template <register_vector V>
  KITTENS_DEVICE void store(const V& total, int64_t width, int64_t c) const {
    if (data == nullptr) return;
    const auto store_as = [&]<class T>(T*) {
      kittens::store(matrix<T>(data, 1, width, 0), total, {.c = c});
    };
    switch (type) {
      case dtype::float32: return store_as(static_cast<float*>(nullptr));
      case dtype::float16: return store_as(static_cast<half*>(nullptr));
      case dtype::bfloat16: return store_as(static_cast<bf16*>(nullptr));
    }
  }
};

// Adds the partial sums, in order: dweight (block_y 0) and dbias (block_y 1).
//
// Grid: (width / 32, 2); warp w of the block adds rows w, w + warps, …; warp 0 adds the warps.
struct norm_reduce_config {
  using vector = rv<float, kWarp>;
  static constexpr int warps = 16;
};

template <class Config>
__global__ void __launch_bounds__(Config::warps* kWarp)
    norm_backward_reduce(const __grid_constant__ norm_backward_params p) {
  begin_dependent_grid();
  using vector = typename Config::vector;
  const int which = arch::block_y(), warp = arch::warp_id(), lane = arch::lane_id();
  const parameter_gradient out(p, which);
  if (out.data == nullptr) return;
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
  out.store(total, p.width, arch::block_x());
}

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
