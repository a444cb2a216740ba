// The backward kernels, in the forms that run all of their code between them.
#pragma once

#include "kernels/norm/layer_norm.h"

enum class backward_form { groups, groups_of_single_elements, wide, wide_single_elements };

// How the rows are spread; the elements are float where they are single, bf16 elsewhere.
struct backward_shape {
  backward_form form;
  int warps, groups;  // of a block
};

void run_backward(const backward_shape& shape, const thunderkittens::layer_norm_backward_params& p);
