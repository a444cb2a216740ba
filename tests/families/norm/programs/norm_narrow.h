// The kernels of narrow rows, in the forms that run all of their code between them.
#pragma once

#include "kernels/norm/norm.h"

enum class narrow_form {
  layer,       // bf16
  rms,         // bf16
  rms_floats,  // float, by fours
  any,         // layer_norm of the element types that the parameters say
  any_rms,
  any_add,  // add_layer_norm
  any_add_rms,
};

void run_narrow(narrow_form form, const thunderkittens::norm_forward_params& p);
void run_narrow(narrow_form form, const thunderkittens::norm_backward_params& p);
