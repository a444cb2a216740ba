// attention_decode and cache_append.
#pragma once

#include "kernels/attention_decode/attention_decode.h"

// As the launchers, of bf16 and heads of HEAD_DIM.
void run(const thunderkittens::attention_decode_params& p);
// By runs of 16 bytes, or by elements.
void run(const thunderkittens::cache_append_params& p, bool in_runs);
