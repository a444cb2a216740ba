#include "linear_attention_step.h"

#include "kernels/linear_attention/linear_attention_step_launch.cuh"

using namespace thunderkittens::linear_attention_kernels;

void run(const thunderkittens::linear_attention_step_params& params) {
  launch_step_of<kittens::bf16>(params, nullptr);
}
