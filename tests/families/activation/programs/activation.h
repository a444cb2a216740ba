// The element-wise kernels, in the forms that run all of their code between them.
#pragma once

#include "kernels/activation/activation.h"

enum class activation_form {
  silu_in_runs,    // gated, bf16
  tanh_in_runs,    // gated, float
  erf_in_runs,     // plain, bf16
  silu_unaligned,  // gated, bf16
  erf_unaligned    // plain, float
};

// Rows of `stride` elements where they are read, contiguous ones where they are written; `up`,
// `dup` of gated forms alone. What is null is not wanted.
struct activation_tensors {
  const void *dy, *gate, *up;
  void *y, *dgate, *dup;
  int64_t rows, width, stride;
};

void run_activation(activation_form form, const activation_tensors& t);
