// cross_entropy: what the host passes to the launchers. No torch, no device code.
//
//   lse = log Σ_j exp(x_j),   loss = lse − (1 − ε) x_t − (ε / V) Σ_j x_j + z · lse²,   per row
//   dloss/dx_j = exp(x_j − lse) (1 + 2 z · lse) − (1 − ε) [j = t] − ε / V
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/cross_entropy.h"

namespace thunderkittens {

// Whether one launch may do it all: warps count the targets of so few rows themselves, and the last
// block adds up their losses. Of long rows, a second one of a multiprocessor would wait for the
// first: 256 × 32000 bf16 takes 18.9 µs in one launch, and 15.9 in three (H200).
constexpr bool few_cross_entropy_rows(int64_t rows, int64_t width, int multiprocessors) {
  return rows <= (width > 8192 ? 1 : 2) * int64_t{multiprocessors};
}

// Whether the last block may wait for the others, which nothing promises to start before it: they
// find a place. A device runs at most 128 grids at a time (CUDA programming guide, compute
// capabilities 8.0 to 12.0), each with one block that waits, and a block has a multiprocessor to
// itself where rows are long, and else at most a quarter of one. So with more than 128
// multiprocessors one, or with more than 64 half of all places, enough for a cluster, are left to
// blocks that wait for nobody. (An A100 has 108: there long rows take several launches. The
// simulator, which is not asked, runs one grid at a time.)
constexpr bool others_find_room(int64_t width, int multiprocessors) {
  return (width > 8192 ? 1 : 2) * multiprocessors > 128;
}
static_assert(others_find_room(50304, 132) && !others_find_room(50304, 114));

// Launcher "cross_entropy_count": how many targets are not ignored, in parts.
struct cross_entropy_count_params {
  const void* targets;  // [rows], int64 where `int64_targets`, else int32
  int64_t* counts;      // [kCrossEntropyParts]
  int64_t rows, ignore_index;
  bool int64_targets;
};

// Launcher "cross_entropy_forward": a loss a row and, if wanted, its gradient and the losses'
// total.
//
// A row whose target is ignore_index gets 0 and zeros, and is not read. One whose target is no
// column, or whose logits are all −inf, gets NaN.
struct cross_entropy_forward_params {
  const void* logits;     // [rows, width] of `type`, rows `stride` elements apart
  const void* targets;    // [rows], int64 where `int64_targets`, else int32
  void* gradient;         // [rows, width] of `type`, rows `gradient_stride` elements apart; the
                          // logits themselves, or apart from them; null: not wanted
  float* loss;            // [rows], or null: not wanted
  float* total;           // [1], of few rows, or null: not wanted
  unsigned* mailboxes;    // [rows], with `total`, 0 before and after: losses on their way to it
  const int64_t* counts;  // [kCrossEntropyParts], with `mean`: their sum is how many targets are
                          // not ignored; null: each warp counts
  const float* dloss;     // [rows], `dloss_stride` elements apart: it is multiplied by; null: by 1
  int64_t* outside;  // [1], perhaps the host's: takes a target that is no column; null: unasked
  int64_t rows, width, stride, gradient_stride, dloss_stride, ignore_index;
  float label_smoothing, z_loss;
  bool int64_targets;
  bool mean;  // gradient and total are divided by how many targets are not ignored
  dtype type;
};

// Launcher "cross_entropy_total": the rows' losses added up.
struct cross_entropy_total_params {
  const float* loss;    // [rows]
  const void* targets;  // [rows], int64 where `int64_targets`, else int32: the total is divided by
                        // how many are not ignored; null: by 1
  float* total;         // [1]
  int64_t rows, ignore_index;
  bool int64_targets;
  const int64_t* counts = nullptr;  // [kCrossEntropyParts]: their sum is how many; null: unknown
};

// Launcher "cross_entropy_backward": each row of a gradient times its factor. What is 0 stays 0,
// ignored rows above all, even times infinity. In place, a row whose factor is 1 is neither read
// nor written.
struct cross_entropy_backward_params {
  const void* gradient;  // [rows, width] of `type`, rows `stride` elements apart
  const float* dloss;    // [rows], `dloss_stride` elements apart
  void* result;          // [rows, width] of `type`, rows `result_stride` elements apart; the
                         // gradient itself, or apart from it
  int64_t rows, width, stride, dloss_stride, result_stride;
  dtype type;
};

inline constexpr kittens::host::kernel_entry<cross_entropy_count_params> kCrossEntropyCount{
    "cross_entropy_count"};
inline constexpr kittens::host::kernel_entry<cross_entropy_forward_params> kCrossEntropyForward{
    "cross_entropy_forward"};
inline constexpr kittens::host::kernel_entry<cross_entropy_total_params> kCrossEntropyTotal{
    "cross_entropy_total"};
inline constexpr kittens::host::kernel_entry<cross_entropy_backward_params> kCrossEntropyBackward{
    "cross_entropy_backward"};

}  // namespace thunderkittens
