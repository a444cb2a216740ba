#include "hedgehog_attention.h"

#include "kernels/hedgehog_attention/hedgehog_attention_launch.cuh"

void run(const thunderkittens::hedgehog_attention_params& p) {
  thunderkittens::hedgehog_attention_kernels::launch_hedgehog_attention<kittens::bf16>(p, nullptr);
}
