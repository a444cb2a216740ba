#include "linear_attention_decay_gradient.h"

#include "kernels/linear_attention/linear_attention_decay_gradient_launch.cuh"

using namespace thunderkittens::linear_attention_kernels;

void run(const thunderkittens::linear_attention_decay_gradient_params& p) {
  p.dots == 1 ? launch_decay_gradient<decay_gradient_config<1>>(p, nullptr)
              : launch_decay_gradient<decay_gradient_config<2>>(p, nullptr);
}
