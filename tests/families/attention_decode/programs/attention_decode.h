// attention_decode.
#pragma once

#include "kernels/attention_decode/attention_decode.h"

// As the launcher, of bf16 and heads of HEAD_DIM.
void run(const thunderkittens::attention_decode_params& p);
