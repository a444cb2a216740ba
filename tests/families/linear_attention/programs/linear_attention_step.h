// One call of the kernel of one token, of a small problem.
#pragma once

#include "kernels/linear_attention/linear_attention_step.h"

// As the launcher, of bf16.
void run(const thunderkittens::linear_attention_step_params& params);
