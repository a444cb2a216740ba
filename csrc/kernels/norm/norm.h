// The norms: what the host passes to the launchers. No torch, no device code.
// (thunderkittens/kernels/norm.h: what the ops compute.)
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/norm.h"

namespace thunderkittens {

// The members of the family, as the kernels' configurations name them.
struct layer_norm_kind {
  static constexpr bool centred = true, adds = false;
};
struct rms_norm_kind {
  static constexpr bool centred = false, adds = false;
};
struct add_layer_norm_kind {
  static constexpr bool centred = true, adds = true;
};
struct add_rms_norm_kind {
  static constexpr bool centred = false, adds = true;
};

// Element i is kept where the generator's number i of `seed` is at least `drop_below`, and then
// multiplied by `scale`.
struct dropout_params {
  const int64_t* seed = nullptr;  // [1], or null: nothing is dropped
  uint32_t drop_below = 0;
  float scale = 1.0f;

  static dropout_params of(double p, const int64_t* seed) {
    const double below = std::min(std::round(p * 4294967296.0), 4294967295.0);
    return {seed, static_cast<uint32_t>(below), static_cast<float>(1.0 / (1.0 - p))};
  }
};

struct norm_forward_params : norm_forward_problem, norm_forward_tensors {
  dropout_params dropout;
};

struct norm_backward_params : norm_backward_problem, norm_backward_tensors {
  dropout_params dropout;
  float* partial;        // workspace [2, partial_rows, width], of rms_norm [1, …]; or null where
                         // dweight and dbias are, or partial_rows is 0
  int64_t partial_rows;  // as of the plan
  norm_backward_path path;
};

inline constexpr kittens::host::kernel_entry<norm_forward_params> kLayerNormForward{
    "layer_norm_forward"},
    kRmsNormForward{"rms_norm_forward"}, kAddLayerNormForward{"add_layer_norm_forward"},
    kAddRmsNormForward{"add_rms_norm_forward"};
inline constexpr kittens::host::kernel_entry<norm_backward_params> kLayerNormBackward{
    "layer_norm_backward"},
    kRmsNormBackward{"rms_norm_backward"}, kAddLayerNormBackward{"add_layer_norm_backward"},
    kAddRmsNormBackward{"add_rms_norm_backward"};

// How narrow rows are spread: each over `lanes` lanes, of `elements` elements each.
struct norm_narrow_shape {
  static constexpr int kElements = 8, kBackwardThreads = 256, kBackwardBlocks = 3;
  int lanes;

  static constexpr norm_narrow_shape of(int64_t width, int elements = kElements) {
    return {int(std::bit_ceil(uint64_t(width + elements - 1) / elements))};
  }
  constexpr int rows_of(int threads) const { return threads / lanes; }
};

// The shape of the backward's grid. A row is spread over `warps` warps of 16 elements a lane, and a
// block works on `groups` rows at once; above kNormFusedWidth a row no longer fits one block's
// registers, and the backward reads it twice.
struct norm_backward_shape {
  static constexpr int kWarpColumns = 512;
  int warps, groups;

  static constexpr norm_backward_shape of(int64_t width) {
    const int warps = int((width + kWarpColumns - 1) / kWarpColumns);
    return {warps, std::max(1, 8 / warps)};
  }
  constexpr int blocks_per_multiprocessor() const { return warps * groups > 8 ? 1 : 2; }
};
inline constexpr int64_t kNormFusedWidth = 16 * norm_backward_shape::kWarpColumns;

}  // namespace thunderkittens
