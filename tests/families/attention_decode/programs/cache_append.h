// cache_append.
#pragma once

#include "kernels/attention_decode/attention_decode.h"

// As the launcher, of bf16. By runs of 16 bytes, or by elements.
void run(const thunderkittens::cache_append_params& p, bool in_runs);
