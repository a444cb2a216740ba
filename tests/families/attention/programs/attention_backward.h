// The backward's kernels of a program. CONFIGS 0: bf16 of head dimension 64; 1: fp16 of head
// dimension 128 with a softcap; 2: bf16 of head dimension 256, with one or without; 3: bf16 of 64
// and 128 whose dq is not added up.
#pragma once

#include "kernels/attention/attention.h"

extern const bool kAddsDq;  // whether dq is added up
void run_attention_backward(const thunderkittens::attention_backward_params& p);
// `starts`: count + 2 numbers.
void run_starts(const int* ends, int count, int length, int* starts);
