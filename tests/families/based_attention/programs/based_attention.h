// One call of a pass of the kernel, of a small problem.
#pragma once

#include <cstdint>

#include "kernels/based_attention/based_attention.h"

// As the launcher, of bf16.
void run(const thunderkittens::based_attention_params& p);
