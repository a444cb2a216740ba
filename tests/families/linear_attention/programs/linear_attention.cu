#include "linear_attention.h"

#include "kernels/linear_attention/linear_attention_launch.cuh"

using namespace thunderkittens::linear_attention_kernels;

void run(const thunderkittens::linear_attention_params& p) {
  if (p.values <= 64) {
    const auto launch = p.reverse ? launch_linear_attention<kittens::bf16, 64, 1, true>
                                  : launch_linear_attention<kittens::bf16, 64, 1, false>;
    launch(p, nullptr);
  } else {
    const auto launch = p.reverse ? launch_linear_attention<kittens::bf16, 128, 2, true>
                                  : launch_linear_attention<kittens::bf16, 128, 2, false>;
    launch(p, nullptr);
  }
}
