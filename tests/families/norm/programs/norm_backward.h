// The backward kernels, in the forms that run all of their code between them: five in the program
// where CONFIGS is 0, three in that where it is 1, the pipelined ones in that where it is 2, and
// those of few rows in that where it is 3, and
// those of medium rows in that where it is 4.
#pragma once

#include "kernels/norm/norm.h"

enum class backward_form {
  groups,
  groups_of_single_elements,  // float
  any_groups,                 // any kind, of the element types and alignment that p says
  any_long,
  long_rows,
  rms_groups,
  add_floats,  // add_rms_norm with a float residual
  add_groups,  // add_layer_norm
  pipelined,
  pipelined_rms,
  pipelined_add,  // add_layer_norm
  pipelined_add_rms,
  pipelined_floats,  // add_rms_norm with a float residual
  few,
  few_rms,
  few_add,     // add_layer_norm
  few_floats,  // add_rms_norm with a float residual
  any_few,
  medium,
  medium_rms,
  medium_add,  // add_layer_norm
};

// How the rows are spread; the elements are bf16 where nothing else is said.
struct backward_shape {
  backward_form form;
  int warps, groups;  // of a block; where rows are few, the warps of a row
};

void run_backward(const backward_shape& shape, const thunderkittens::norm_backward_params& p);
