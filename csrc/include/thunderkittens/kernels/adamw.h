// AdamW on any number of parameters at once, and the global norm of their gradients. Plain C++
// without torch.
//
//   g ← ±grad · min(1, max_norm / (norm + 10⁻⁶))        maximize: minus; no norm: g ← ±grad
//   m ← m + (1 − β1) (g − m),   v ← β2 v + (1 − β2) g²
//   p ← p − lr (m / (1 − β1^t) / (√(v / (1 − β2^t)) + eps) + weight_decay · p)
//
// Of a step of a model: grad_norm, then an adamw for each set of parameters that share their
// hyperparameters and dtypes. All stay on the device: the norm, the numbers of steps, whether a
// step is skipped, and the learning rate, if wanted. So a step may be captured in a CUDA graph.
//
//   const grad_norm_plan norm = plan(grad_norm_problem{sizes, dtype::bfloat16}, device);
//   const adamw_plan update = plan(adamw_problem{.sizes = sizes, .type = dtype::bfloat16,
//                                                .master_weights = true, .max_norm = 1.0}, device);
//   launch(norm, {grads, squares_and_norm}, work, stream);
//   launch(update, {.parameters = addresses, .grad_norm = norm_address}, work, stream);
//
// kAdamwTensors parameters are one launch. Their addresses are parameters of the kernel: nothing is
// copied to the device.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct adamw_norm_params;
struct adamw_update_params;

inline constexpr int kAdamwTensors = 192;

// ---- The global norm ----------------------------------------------------------------------------

// norm = √(Σ g²) over all elements of all gradients, in float32: the same bits on every run, and on
// every GPU.
struct grad_norm_problem {
  std::vector<int64_t> sizes;  // elements of each gradient
  dtype type;
  bool more = false;  // the sum of squares that is in `norm` is added: another list's
};
struct grad_norm_tensors {
  std::span<const void* const> grads;  // contiguous
  float* norm;                         // [1]
};
struct grad_norm_plan {
  grad_norm_problem problem;
  bound_kernel<adamw_norm_params> kernel;
  workspace_size workspace = {};
};

// ---- The update ---------------------------------------------------------------------------------

struct adamw_problem {
  std::vector<int64_t> sizes;   // elements of each parameter
  dtype type;                   // of parameters and gradients
  dtype moments;                // float32 or bfloat16
  bool master_weights = false;  // 16-bit parameters are roundings of float32 ones
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();
  bool skip_nonfinite = false;  // nothing is done where the norm is not finite
  // Round bfloat16 moments, and bfloat16 parameters that have no master weights, up or down at
  // random, so that the mean is exact: by Philox, from seed, step, the parameter's number and the
  // element's.
  bool stochastic_rounding = false;
  uint64_t seed = 0;
  double step = 0;  // t of this update, where it is not on the device
};

// Of one parameter. All are contiguous, or all alike in a dense order.
struct adamw_addresses {
  const void* grad = nullptr;
  void* param = nullptr;
  void *exp_avg = nullptr, *exp_avg_sq = nullptr;  // m, v
  float* master = nullptr;                         // where the problem has them
  float* step = nullptr;  // [1], updates so far, raised by one; null: the problem's step
  uint32_t number = 0;    // of the parameter, for stochastic rounding
};
struct adamw_tensors {
  std::span<const adamw_addresses> parameters;
  const float* lr = nullptr;         // [1]; null: the problem's
  const float* grad_norm = nullptr;  // [1]; null: neither clipped nor skipped
  int* skipped = nullptr;            // [1], raised by one where the step is skipped
};
struct adamw_plan {
  adamw_problem problem;
  bound_kernel<adamw_update_params> kernel;
  workspace_size workspace = {};
};

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const grad_norm_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const adamw_problem& problem);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT grad_norm_plan plan(const grad_norm_problem& problem, const device& d);
KITTENS_EXPORT adamw_plan plan(const adamw_problem& problem, const device& d);

// On the plan's device, which has to be the current one. Numbers in `problem` may be changed
// between plan and launch: lr, step, seed.
KITTENS_EXPORT void launch(const grad_norm_plan& plan, const grad_norm_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const adamw_plan& plan, const adamw_tensors& tensors,
                           const workspace& work, stream s);

}  // namespace thunderkittens
