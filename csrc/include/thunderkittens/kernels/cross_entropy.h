// cross_entropy, forward with its gradient: what to compute, where, and the launch. Plain C++
// without torch.
//
//   lse = log Σ_j exp(x_j),   loss = lse − (1 − ε) x_t − (ε / V) Σ_j x_j + z · lse²,   per row
//   dloss/dx_j = exp(x_j − lse) (1 + 2 z · lse) − (1 − ε) [j = t] − ε / V
//
// A row whose target is ignore_index gets 0 and zeros, and is not read. One whose target is no
// column, or whose logits are all −inf, gets NaN.
//
//   const auto planned = plan(cross_entropy_forward_problem{.rows = 8192, .width = 50257,
//       .stride = 50257, .gradient = true, .gradient_stride = 50257, .type = dtype::bfloat16}, d);
//   launch(planned, {.logits = x, .targets = t, .loss = loss, .gradient = x}, {memory}, stream);
#pragma once

#include <cstdint>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct cross_entropy_count_params;
struct cross_entropy_forward_params;
struct cross_entropy_total_params;
struct cross_entropy_backward_params;

inline constexpr int64_t kCrossEntropyMaxWidth = int64_t{1} << 24;
inline constexpr int kCrossEntropyParts = 32;  // in which targets are counted

enum class loss_reduction : uint8_t { none, sum, mean };  // mean: over rows that are not ignored

// ---- Losses, and the gradient of the logits if it is wanted ------------------------------------

struct cross_entropy_forward_problem {
  int64_t rows, width, stride;  // strides: elements between rows
  bool gradient = false;
  int64_t gradient_stride = 0, dloss_stride = 0;
  int64_t ignore_index = -100;
  loss_reduction reduction = loss_reduction::mean;
  bool counted = false;  // without a reduction: the gradient is divided by the sum of `counts`
  float label_smoothing = 0.0f, z_loss = 0.0f;
  bool int64_targets = true;  // else int32
  dtype type;
};

struct cross_entropy_forward_tensors {
  const void* logits;        // [rows, width] of `type`
  const void* targets;       // [rows]
  float* loss = nullptr;     // [rows], or reduced [1]; null: not wanted
  void* gradient = nullptr;  // [rows, width] of `type`; the logits themselves, or apart from them
  const int64_t* counts = nullptr;  // [kCrossEntropyParts], of cross_entropy_count, where `counted`
  const float* dloss = nullptr;     // [rows]: each row's gradient is multiplied by it; null: by 1
  int64_t* outside = nullptr;       // [1], perhaps the host's: takes a target that is no column
};

struct cross_entropy_forward_plan
    : plain_plan<cross_entropy_forward_problem, cross_entropy_forward_params> {
  bound_kernel<cross_entropy_count_params> count;
  bound_kernel<cross_entropy_total_params> total;
  bool few;  // one launch does it all: warps count the targets, and the last block adds up
};

// ---- Parts of it, where rows come in several calls ---------------------------------------------

// How many targets are not ignored, in parts.
struct cross_entropy_count_problem {
  int64_t rows;
  int64_t ignore_index = -100;
  bool int64_targets = true;
};
struct cross_entropy_count_tensors {
  const void* targets;  // [rows]
  int64_t* counts;      // [kCrossEntropyParts]
};
using cross_entropy_count_plan =
    plain_plan<cross_entropy_count_problem, cross_entropy_count_params>;

// The rows' losses added up.
struct cross_entropy_total_problem {
  int64_t rows;
  int64_t ignore_index = -100;
  bool mean = true, int64_targets = true;
};
struct cross_entropy_total_tensors {
  const float* loss;                // [rows]
  const void* targets = nullptr;    // [rows], of a mean
  float* total;                     // [1]
  const int64_t* counts = nullptr;  // of cross_entropy_count; null: targets are counted
};
using cross_entropy_total_plan =
    plain_plan<cross_entropy_total_problem, cross_entropy_total_params>;

// Each row of a gradient times its factor. What is 0 stays 0, ignored rows above all, even times
// infinity. In place, a row whose factor is 1 is neither read nor written.
struct cross_entropy_backward_problem {
  int64_t rows, width, stride, dloss_stride, result_stride;
  dtype type;
};
struct cross_entropy_backward_tensors {
  const void* gradient;  // [rows, width] of `type`
  const float* dloss;    // [rows], `dloss_stride` elements apart
  void* result;          // [rows, width] of `type`; the gradient itself, or apart from it
};
using cross_entropy_backward_plan =
    plain_plan<cross_entropy_backward_problem, cross_entropy_backward_params>;

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const cross_entropy_forward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const cross_entropy_count_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const cross_entropy_total_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const cross_entropy_backward_problem& problem);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT cross_entropy_forward_plan plan(const cross_entropy_forward_problem& problem,
                                               const device& d);
KITTENS_EXPORT cross_entropy_count_plan plan(const cross_entropy_count_problem& problem,
                                             const device& d);
KITTENS_EXPORT cross_entropy_total_plan plan(const cross_entropy_total_problem& problem,
                                             const device& d);
KITTENS_EXPORT cross_entropy_backward_plan plan(const cross_entropy_backward_problem& problem,
                                                const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const cross_entropy_forward_plan& plan,
                           const cross_entropy_forward_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const cross_entropy_count_plan& plan,
                           const cross_entropy_count_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const cross_entropy_total_plan& plan,
                           const cross_entropy_total_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const cross_entropy_backward_plan& plan,
                           const cross_entropy_backward_tensors& tensors, const workspace& work,
                           stream s);

}  // namespace thunderkittens
