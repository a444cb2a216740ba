// The attention kernels of a program: where CONFIGS is 0, bf16 of head dimension 64; where it is 1,
// fp16 with a softcap and bf16 of head dimension 192; where it is 2, bf16 of head dimension 64
// without sums.
#pragma once

#include "kernels/attention/attention.h"

void run_attention(const thunderkittens::attention_forward_params& p);
