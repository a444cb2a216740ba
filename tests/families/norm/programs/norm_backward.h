// The backward kernels, in the forms that run all of their code between them: four in the program
// where CONFIGS is 0, four in that where it is 1, the pipelined ones in that where it is 2, and
// those of few rows in that where it is 3.
#pragma once

#include "kernels/norm/norm.h"

enum class backward_form {
  groups,
  groups_of_single_elements,
  wide,
  wide_single_elements,
  rms_groups,
  add_groups,  // add_layer_norm
  add_floats,  // add_rms_norm with a float residual
  add_wide,    // add_layer_norm
  pipelined,
  pipelined_rms,
  pipelined_add,     // add_layer_norm
  pipelined_floats,  // add_rms_norm with a float residual
  few,
  few_single_elements,
  few_rms,
  few_add,                  // add_layer_norm
  few_add_single_elements,  // add_layer_norm
  few_floats,               // add_rms_norm with a float residual
};

// How the rows are spread; the elements are float where they are single, bf16 elsewhere.
struct backward_shape {
  backward_form form;
  int warps, groups;  // of a block; where rows are few, the warps of a row
};

void run_backward(const backward_shape& shape, const thunderkittens::norm_backward_params& p);
