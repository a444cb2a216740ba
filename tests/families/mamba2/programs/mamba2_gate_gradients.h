// The gates' gradients of small problems.
#pragma once

#include "kernels/mamba2/mamba2.h"

// As the launcher, of bf16.
void run(const thunderkittens::mamba2_gate_gradients_params& p);
