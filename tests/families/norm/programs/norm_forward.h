// The forward kernels, in the forms that run all of their code between them.
#pragma once

#include "kernels/norm/norm.h"

enum class forward_form {
  rows,
  rows_of_a_warp,
  rows_of_early_weights,
  rows_of_five_warps,  // at most, of float
  single_elements,     // float
  rms_rows,
  add_rows,      // add_layer_norm
  add_rms_rows,  // with a float residual
  long_rows,
  rms_long,
  add_long,  // add_layer_norm
  any,       // layer_norm of the element types and alignment that the parameters say
  any_rms,
  any_add,  // add_layer_norm
  any_add_rms,
};

// bf16 where nothing else is said.
void run_forward(forward_form form, const thunderkittens::norm_forward_params& p);

// What dropout multiplies elements first, …, first + 3 by.
void run_factors(const thunderkittens::dropout_params& dropout, int64_t first, float* factor);
