// linear, of bf16.
#pragma once

#include "kernels/linear/linear.h"

// As the launcher, with fewer kernels: those of 16 rows, gated or not, and of 17 … 32 rows.
void run(const thunderkittens::linear_params& p);
