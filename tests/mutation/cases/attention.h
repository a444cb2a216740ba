// The attention kernel of a program, by its problem: head dimension HEAD_DIM, full or causal.
#pragma once

#include "kernels/attention/attention.h"

void run_attention(const thunderkittens::attention_forward_params& p);
