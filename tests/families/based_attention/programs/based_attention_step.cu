#include "based_attention_step.h"

#include "kernels/based_attention/based_attention_step_launch.cuh"

using namespace thunderkittens::based_attention_kernels;

void run(const thunderkittens::based_attention_step_params& params) {
  launch_based_step_of<kittens::bf16>(params, nullptr);
}
