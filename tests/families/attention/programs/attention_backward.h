// The backward's kernels of a program: where CONFIGS is 0, bf16 of head dimension 64; where it is
// 1, fp16 of head dimension 128.
#pragma once

#include "kernels/attention/attention.h"

void run_attention_backward(const thunderkittens::attention_backward_params& p);
