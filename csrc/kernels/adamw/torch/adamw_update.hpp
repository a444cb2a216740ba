// What the torch ops of AdamW share: the update of lists of tensors, by the kernel or by ATen.
#pragma once

#include <ATen/ATen.h>

#include "binding/tensors.h"

namespace thunderkittens::adamw_torch {

using at::TensorList;

// Hyperparameters, as thunderkittens/kernels/adamw.h names them.
struct update_options {
  double lr, beta1, beta2, eps, weight_decay;
  bool maximize;
  std::optional<double> max_norm;
  bool skip_nonfinite, stochastic_rounding;
  int64_t seed;
  double step;  // where there are no tensors of steps
};

// All lists have a tensor for each parameter; `masters` and `steps` may be empty.
struct update_call {
  TensorList grads, params, exp_avgs, exp_avg_sqs, masters, steps;
  at::IntArrayRef numbers;  // of the parameters; empty: 0
  optional_tensor lr, grad_norm, skipped;
  update_options options;
};

// Raises what the options do not allow. `op`: as messages name it.
void check_options(const char* op, const update_options& options);

// Of tensors that have been checked, on one device. A fallback is said in the name of adamw.
void update(const update_call& call);

// The same by ATen, of parameter i.
void update_by_aten(const update_call& call, size_t i);
// Raises `skipped` where the step is.
void count_skipped(const update_call& call);

// √(Σ g²) over all elements of all gradients: [] of float32, or of float64 if one of them is.
Tensor grad_norm(TensorList grads);

}  // namespace thunderkittens::adamw_torch
