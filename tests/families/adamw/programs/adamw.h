// AdamW's kernels, in the forms that run all of their code between them.
#pragma once

#include "kernels/adamw/adamw.h"

enum class adamw_form {
  floats,      // float32 parameters and moments
  masters,     // bfloat16 parameters, float32 moments and master weights
  stochastic,  // bfloat16 parameters and moments
};

// Of some parameters; `p.table` is made of their addresses and sizes.
void run_adamw(adamw_form form, const thunderkittens::adamw_update_params& p);
void run_adamw_norm(bool halves, const thunderkittens::adamw_norm_params& p);
