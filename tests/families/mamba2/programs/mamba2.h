// The gates and one token's step of small problems.
#pragma once

#include "kernels/mamba2/mamba2.h"

// As the launchers, of bf16.
void run_gates(const thunderkittens::mamba2_gates_params& p);
void run_step(const thunderkittens::mamba2_step_params& p);
