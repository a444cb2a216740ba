// cross_entropy of many wide rows where no gradient is wanted: the loss alone.
//
//   logits [rows, width], targets [rows] → loss [rows]
//
// Memory-bound: logits are read once. A block has one row and walks over it, each thread two
// 16-byte vectors at a time. What keeps loads on their way while the special-function units work is
// the number of warps, 64 a multiprocessor, of blocks that do not wait for each other.
#pragma once

#include "kernels/cross_entropy/cross_entropy_far.cuh"
#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

template <class T>
struct cross_entropy_loss_config {
  using type = T;
  using vector = vector16<T>;
  static constexpr int vectors = 2;  // of a thread, on their way at a time
  static constexpr int threads = 256;
  static constexpr int min_blocks = 8;  // 32 registers a thread
};

// Adds this thread's vectors of a row: the vectors `thread`, thread + threads, … (In two passes,
// too.)
template <class Config>
KITTENS_DEVICE void include_vectors(near_sums& sums, const typename Config::type* x,
                                    const row_pieces<typename Config::type>& pieces,
                                    bool smoothing) {
  using vector = typename Config::vector;
  constexpr int kVectors = Config::vectors, kLength = vector::kLength, kPair = 2;
  static_assert(kVectors % kPair == 0);
  const int threads = arch::block_threads();
  for (int first = arch::thread_id(); first < pieces.vectors; first += kVectors * threads) {
    typename vector::run runs[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int v = first + i * threads;
      runs[i] = vector::all(-kInfinity);
      if (v < pieces.vectors) runs[i] = vector::from_global(x + pieces.column(v));
    }
#pragma unroll
    for (int i = 0; i < kVectors; i += kPair) {
      float logits[kPair * kLength];
#pragma unroll
      for (int k = 0; k < kPair; ++k) {
        float values[kLength];
        runs[i + k].get(values);
        if (smoothing && first + (i + k) * threads < pieces.vectors) sums.include_plain(values);
#pragma unroll
        for (int j = 0; j < kLength; ++j) logits[k * kLength + j] = values[j];
      }
      sums.include(logits);
    }
  }
}

// Grid: a block a row.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    cross_entropy_loss(const __grid_constant__ cross_entropy_forward_params p) {
  begin_dependent_grid();
  using T = typename Config::type;
  const int thread = arch::thread_id(), warps = arch::block_threads() / kWarp;
  const int64_t r = arch::block_x();
  const auto* x = static_cast<const T*>(p.logits) + r * p.stride;
  const bool smoothing = p.label_smoothing > 0.0f;
  const int64_t target = load_target(p, r);
  if (target == p.ignore_index) {
    if (thread == 0) arch::store_global(p.loss + r, 0.0f);
    return;
  }

  const row_pieces<T> pieces(x, p.width);
  near_sums sums;
  include_vectors<Config>(sums, x, pieces, smoothing);
  // On their way together; before the row, they would take registers from it.
  const int column = column_of(target, p.width);
  const float x_target =
      thread == 0 && column >= 0 ? convert<float>(arch::load_global(x + column)) : 0.0f;
  const bool has_loose = pieces.has_loose(thread);
  if (has_loose) {
    sums.include_one(convert<float>(arch::load_global(x + pieces.loose_column(thread))), smoothing);
  }
  auto& shared = *reinterpret_cast<group_sums*>(arch::dynamic_shared());
  const auto finish = [&](const auto& sums) {
    if (thread != 0) return;
    tell_if_outside(p, r, column);
    arch::store_global(p.loss + r, loss_of(p, sums.plain, log_sum_exp(sums, column), x_target));
  };
  combine(sums, shared, 0, arch::warp_id(), warps, smoothing);
  if (is_far<T>(sums)) [[unlikely]] {
    const far_row<T> row{
        x, pieces, thread, arch::block_threads(), pieces.vectors, has_loose ? thread : -1};
    far_sums again = row.sums(smoothing);
    combine(again, shared, 1, arch::warp_id(), warps, smoothing);
    return finish(again);
  }
  finish(sums);
}

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
