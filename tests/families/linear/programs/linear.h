// linear, of bf16.
#pragma once

#include "kernels/linear/linear.h"

// As the launcher.
void run(const thunderkittens::linear_params& p);
