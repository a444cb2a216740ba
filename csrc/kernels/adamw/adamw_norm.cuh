// The global norm of gradients: √(Σ g²), always added up in the same order.
//
// Block b of a launch sums chunks b, b + blocks, …; the block that ends last of all launches adds
// the blocks' sums.
#pragma once

#include "kernels/adamw/adamw_table.cuh"

namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET {

template <class T>
struct adamw_norm_config {
  using type = T;
  static constexpr int threads = kAdamwThreads;
  static constexpr int min_blocks = 8;
  static constexpr int64_t shared_bytes = threads / kWarp * sizeof(float);
};

// The sum of a value over the warp, for all of its lanes.
KITTENS_DEVICE float warp_sum(float value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += arch::shuffle_xor(value, mask);
  return value;
}

// Σ g² over a thread's part of a chunk.
template <class T>
KITTENS_DEVICE float sum_of_squares(const adamw_chunk& c) {
  float sum = 0;
  const T* grads = static_cast<const T*>(c.tensor.grad) + c.start;
  for_each_part<16 / int(sizeof(T))>(c, [&]<int N>(int first, int end) {
    constexpr int kRuns = kElements / N;
    lane_run<T, N> runs[kRuns];
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int at = first + (i * kAdamwThreads + arch::thread_id()) * N;
      detail::run_access<T, N>::load(runs[i], grads + at, at < end);
    }
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      float g[N];
      runs[i].get(g);
#pragma unroll
      for (int e = 0; e < N; ++e) sum = arch::fma(g[e], g[e], sum);
    }
  });
  return sum;
}

// Grid: at most kAdamwNormBlocks blocks.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    adamw_norm(const __grid_constant__ adamw_norm_params p) {
  begin_dependent_grid();
  float sum = 0;
  for (int chunk = arch::block_x(); chunk < p.table.chunks; chunk += arch::grid_x()) {
    sum += sum_of_squares<typename Config::type>({p.table, chunk});
  }
  auto* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  sum = warp_sum(sum);
  const int warp = arch::warp_id(), lane = arch::lane_id();
  if (lane == 0) arch::store_shared(shared + warp, sum);
  arch::sync_block();
  if (warp != 0) return;
  constexpr int kWarps = Config::threads / kWarp;
  const float of_block = warp_sum(lane < kWarps ? arch::load_shared(shared + lane) : 0.0f);
  if (lane == 0) arch::store_global(p.partial + p.first + arch::block_x(), of_block);
  if (!ends_last(p.counter) || p.norm == nullptr) return;
  const int parts = p.first + arch::grid_x();
  float total = 0;
#pragma unroll 8
  for (int i = lane; i < parts; i += kWarp) total += arch::load_global(p.partial + i);
  total = warp_sum(total);
  if (lane != 0) return;
  if (p.more) {
    const float before = arch::load_global(p.norm);
    total = arch::fma(before, before, total);
  }
  arch::store_global(p.norm, sqrtf(total));
}

}  // namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET
