// What cross_entropy adds up over its rows: the targets that are not ignored, and the losses.
#pragma once

#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

// The sum of a value over the block, for thread 0, always in the same order. `shared`: a place for
// each warp.
template <class T>
KITTENS_DEVICE T block_sum(T value, T* shared) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += arch::shuffle_xor(value, mask);
  if (arch::lane_id() == 0) arch::store_shared(shared + arch::warp_id(), value);
  arch::sync_block();
  const int warps = arch::block_threads() / kWarp;
  T total = 0;
  if (arch::thread_id() == 0) {
    for (int w = 0; w < warps; ++w) total += arch::load_shared(shared + w);
  }
  return total;
}

struct cross_entropy_count_config {
  static constexpr int threads = 256;
  static constexpr int64_t shared_bytes = threads / kWarp * sizeof(int64_t);
};

// Grid: kCrossEntropyParts blocks.
template <class Config>
__global__ void __launch_bounds__(Config::threads)
    cross_entropy_count(const __grid_constant__ cross_entropy_count_params p) {
  begin_dependent_grid();
  int64_t count =
      count_targets<8>(p, int64_t(arch::block_x()) * Config::threads + arch::thread_id(),
                       kCrossEntropyParts * Config::threads);
  count = block_sum(count, reinterpret_cast<int64_t*>(arch::dynamic_shared()));
  if (arch::thread_id() == 0) arch::store_global(p.counts + arch::block_x(), count);
}

struct cross_entropy_total_config {
  static constexpr int threads = 1024;
  static constexpr int64_t shared_bytes = threads / kWarp * (sizeof(int64_t) + sizeof(float));
};

// Grid: one block.
template <class Config>
__global__ void __launch_bounds__(Config::threads)
    cross_entropy_total(const __grid_constant__ cross_entropy_total_params p) {
  begin_dependent_grid();
  auto* counts = reinterpret_cast<int64_t*>(arch::dynamic_shared());
  auto* totals = reinterpret_cast<float*>(counts + Config::threads / kWarp);
  const int thread = arch::thread_id();
  const bool mean = p.targets != nullptr, known = mean && p.counts != nullptr;
  int64_t count = known && thread < kCrossEntropyParts ? arch::load_global(p.counts + thread) : 0;
  if (mean && !known) count = count_targets<16>(p, thread, Config::threads);
  float total = 0.0f;
#pragma unroll 16
  for (int64_t r = thread; r < p.rows; r += Config::threads) {
    total += arch::load_global(p.loss + r);
  }
  total = block_sum(total, totals);
  count = block_sum(count, counts);
  if (thread != 0) return;
  arch::store_global(p.total, mean ? total / float(count) : total);  // 0 / 0 is torch's NaN, too
}

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
