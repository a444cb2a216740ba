// The forward kernels, in the forms that run all of their code between them.
#pragma once

#include "kernels/norm/layer_norm.h"

enum class forward_form {
  rows_of_warps,
  rows_of_blocks,
  single_elements,
  wide,
  wide_single_elements
};

// float where elements are single, bf16 elsewhere.
void run_forward(forward_form form, const thunderkittens::layer_norm_forward_params& p);
