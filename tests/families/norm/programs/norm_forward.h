// The forward kernels, in the forms that run all of their code between them.
#pragma once

#include "kernels/norm/norm.h"

enum class forward_form {
  rows,
  rows_of_a_warp,
  rows_of_early_weights,
  rows_of_five_warps,  // at most, of float
  single_elements,
  wide,
  wide_single_elements,
  rms_rows,
  rms_wide,
  add_rows,             // add_layer_norm
  add_single_elements,  // add_layer_norm
  add_rms_rows,         // add_rms_norm, with a float residual
  add_wide,             // add_layer_norm
  add_wide_single_elements,
};

// float where that or single elements are said, bf16 elsewhere.
void run_forward(forward_form form, const thunderkittens::norm_forward_params& p);

// What dropout multiplies elements first, …, first + 3 by.
void run_factors(const thunderkittens::dropout_params& dropout, int64_t first, float* factor);
