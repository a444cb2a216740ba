#include "linear_attention_decay_gradient.h"

#include "kernels/linear_attention/linear_attention_decay_gradient_launch.cuh"

using namespace thunderkittens::linear_attention_kernels;

void run(const thunderkittens::linear_attention_decay_gradient_params& p) {
  const auto launch = p.anchor == 128 ? p.dots == 1
                                            ? launch_decay_gradient<decay_gradient_config<1, 128>>
                                            : launch_decay_gradient<decay_gradient_config<2, 128>>
                      : p.dots == 1 ? launch_decay_gradient<decay_gradient_config<1, 256>>
                                      : launch_decay_gradient<decay_gradient_config<2, 256>>;
  launch(p, nullptr);
}
