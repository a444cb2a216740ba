// The kernel, in the forms that run all of its code between them.
#pragma once

#include "kernels/rotary/rotary.h"

enum class rotary_form {
  halves,
  neighbours,
  neighbours_of_4_bytes,
  single_halves,
  single_neighbours,
};

// float where elements are single, bf16 elsewhere.
void run_rotary(rotary_form form, const thunderkittens::rotary_params& p);
