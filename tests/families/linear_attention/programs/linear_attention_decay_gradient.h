// The gradient of the decays of a small problem.
#pragma once

#include "kernels/linear_attention/linear_attention_decay_gradient.h"

// As the launcher.
void run(const thunderkittens::linear_attention_decay_gradient_params& p);
