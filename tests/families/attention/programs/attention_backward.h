// What attention_backward.cu launches.
#pragma once

#include "kernels/attention/attention.h"

// With the kernels of CONFIGS: 0 is bf16 of 64 columns, 1 is bf16 of 128.
void run_attention_backward(const thunderkittens::attention_backward_params& p);
