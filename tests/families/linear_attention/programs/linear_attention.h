// One call of the chunkwise kernel, of a small problem.
#pragma once

#include <cstdint>

#include "kernels/linear_attention/linear_attention.h"

// As the launcher, of bf16.
void run(const thunderkittens::linear_attention_params& p);
