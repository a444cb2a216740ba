// One token of hedgehog attention.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention.h"

// As the launcher, of float32.
void run(const thunderkittens::hedgehog_attention_step_params& p);
