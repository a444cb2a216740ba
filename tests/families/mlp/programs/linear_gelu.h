// The products beside gelu, and sums of columns, of bf16.
#pragma once

#include "kernels/mlp/mlp.h"

// As the launchers.
void run(const thunderkittens::linear_gelu_params& p);
void run(const thunderkittens::linear_gelu_backward_params& p);
