// cross_entropy of rows that fit in registers, up to kRegisterWidth columns: loss, and gradient.
//
//   logits [rows, width], targets [rows] → loss [rows], gradient [rows, width]
//
// Memory-bound: logits are read once and the gradient is written once. A group of warps has one
// row, each lane 32 of its elements as they are loaded; several groups share a block, so that
// narrow rows fill it. Many blocks are resident, which keeps enough loads on their way.
//
//   width ≤ 1024    a warp a row, no barrier
//   above           a warp per 1024 columns; one barrier a row
#pragma once

#include "kernels/cross_entropy/cross_entropy_row.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

template <class T>
struct cross_entropy_rows_config {
  using type = T;
  using vector = vector16<T>;
  static constexpr int vectors = 32 / vector::kLength;  // of a lane
  static constexpr int warp_columns = 32 * kWarp;
  static constexpr int max_warps = 16;  // of a row
  static constexpr int max_threads = max_warps * kWarp;
  // Up to 14 columns may be outside of the vectors of the body.
  static constexpr int64_t max_width = max_warps * warp_columns;
};

// One lane's part of a row.
template <class Config>
struct register_row {
  using T = typename Config::type;
  using vector = typename Config::vector;

  row_pieces<T> pieces;
  int first;  // vector of the body
  bool has_loose;
  typename vector::run body[Config::vectors];
  float loose = 0.0f;

  KITTENS_DEVICE register_row(const T* row, int64_t width, int warp)
      : pieces(row, width),
        first(warp * Config::vectors * kWarp + arch::lane_id()),
        has_loose(warp == 0 && pieces.has_loose(arch::lane_id())) {}

  KITTENS_DEVICE int vector_of(int i) const { return first + i * kWarp; }
  KITTENS_DEVICE bool exists(int i) const { return vector_of(i) < pieces.vectors; }

  KITTENS_DEVICE void load(const T* row) {
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      body[i] = vector::all(-kInfinity);
      if (exists(i)) body[i] = vector::from_global(row + pieces.column(vector_of(i)));
    }
    if (has_loose) loose = convert<float>(arch::load_global(row + loose_column()));
  }
  // 8 logits at a time, which leaves registers for the row.
  KITTENS_DEVICE void include_in(softmax_sums& sums, bool smoothing) const {
    constexpr int kVectors = 8 / vector::kLength;
#pragma unroll
    for (int i = 0; i < Config::vectors; i += kVectors) {
      float x[8];
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        float values[vector::kLength];
        body[i + k].get(values);
        if (smoothing && exists(i + k)) sums.plain += sum_of(values);
#pragma unroll
        for (int j = 0; j < vector::kLength; ++j) x[k * vector::kLength + j] = values[j];
      }
      sums.include(x);
    }
    if (has_loose) sums.include_one(loose, smoothing);
  }
  KITTENS_DEVICE void store_gradient(T* row, const row_gradient& rule) const {
    const bool aligned = elements_past_16_bytes(row + pieces.head) == 0;
#pragma unroll
    for (int i = 0; i < Config::vectors; ++i) {
      if (!exists(i)) break;
      const int column = pieces.column(vector_of(i));
      float x[vector::kLength];
      body[i].get(x);
      rule.apply(x);
      rule.hit_target(x, column);
      typename vector::run result;
      result.set(x);
      vector::to_global(row + column, result, aligned);
    }
    if (!has_loose) return;
    float x[1] = {loose};
    rule.apply(x);
    rule.hit_target(x, loose_column());
    arch::store_global(row + loose_column(), convert<T>(x[0]));
  }
  KITTENS_DEVICE void store_zeros(T* row) const {
    const bool aligned = elements_past_16_bytes(row + pieces.head) == 0;
    for (int i = 0; i < Config::vectors && exists(i); ++i) {
      vector::to_global(row + pieces.column(vector_of(i)), vector::all(0.0f), aligned);
    }
    if (has_loose) arch::store_global(row + loose_column(), convert<T>(0.0f));
  }

 private:
  KITTENS_DEVICE int loose_column() const { return pieces.loose_column(arch::lane_id()); }
};

// Grid: a block for each `groups` rows, groups · warps warps a block.
template <class Config>
__global__ void __launch_bounds__(Config::max_threads, 2)
    cross_entropy_rows(const __grid_constant__ cross_entropy_forward_params p, int warps) {
  using T = typename Config::type;
  const int groups = arch::block_threads() / (warps * kWarp);
  const int group = arch::warp_id() / warps, warp = arch::warp_id() % warps;
  const int64_t r = int64_t(arch::block_x()) * groups + group;
  if (r >= p.rows) return;  // the whole group

  const auto* x = static_cast<const T*>(p.logits) + r * p.stride;
  auto* gradient = static_cast<T*>(p.gradient) + r * p.gradient_stride;
  const bool first = warp == 0 && arch::lane_id() == 0, smoothing = p.label_smoothing > 0.0f;
  const int64_t target = load_target(p, r);
  register_row<Config> row(x, p.width, warp);
  if (target == p.ignore_index) {
    if (first && p.loss != nullptr) arch::store_global(p.loss + r, 0.0f);
    if (p.gradient != nullptr) row.store_zeros(gradient);
    return;
  }

  row.load(x);
  const int column = column_of(target, p.width);
  const float x_target =
      first && column >= 0 ? convert<float>(arch::load_global(x + column)) : 0.0f;
  softmax_sums sums;
  row.include_in(sums, smoothing);
  combine(sums, reinterpret_cast<group_sums*>(arch::dynamic_shared())[group], 0, warp, warps,
          1 + group, smoothing);
  const float dloss = p.dloss == nullptr ? 1.0f : arch::load_global(p.dloss + r * p.dloss_stride);
  const row_result result = finish_row(p, sums, column, x_target, dloss * inverse_count(p.counts));
  if (first && p.loss != nullptr) arch::store_global(p.loss + r, result.loss);
  if (p.gradient != nullptr) row.store_gradient(gradient, result.gradient);
}

}  // namespace thunderkittens::inline KITTENS_TARGET
