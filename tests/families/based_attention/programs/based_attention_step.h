// One call of the kernel of one token, of a small problem.
#pragma once

#include "kernels/based_attention/based_attention.h"

// As the launcher, of bf16.
void run(const thunderkittens::based_attention_step_params& params);
