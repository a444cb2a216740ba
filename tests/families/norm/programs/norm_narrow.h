// The kernels of narrow rows, in the forms that run all of their code between them.
#pragma once

#include "kernels/norm/norm.h"

enum class narrow_form {
  layer,                  // bf16
  layer_single_elements,  // float, one by one
  rms,                    // bf16
  rms_floats,             // float, by fours
  add_layer,              // bf16
  add_rms,                // bf16 with a float residual
};

void run_narrow(narrow_form form, const thunderkittens::norm_forward_params& p);
void run_narrow(narrow_form form, const thunderkittens::norm_backward_params& p);
