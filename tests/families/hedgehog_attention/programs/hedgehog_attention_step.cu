#include "hedgehog_attention_step.h"

#include "kernels/hedgehog_attention/hedgehog_attention_step_launch.cuh"

void run(const thunderkittens::hedgehog_attention_step_params& p) {
  thunderkittens::hedgehog_attention_kernels::launch_hedgehog_step<float>(p, nullptr);
}
