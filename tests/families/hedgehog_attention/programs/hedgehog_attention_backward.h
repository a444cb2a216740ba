// One call of the backward's kernels, of a small problem.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention.h"

// As the launcher, of bf16.
void run(const thunderkittens::hedgehog_attention_backward_params& p);
