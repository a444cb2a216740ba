#include "hedgehog_attention_backward.h"

#include "kernels/hedgehog_attention/hedgehog_attention_backward_launch.cuh"

void run(const thunderkittens::hedgehog_attention_backward_params& p) {
  using namespace thunderkittens::hedgehog_attention_kernels;
  launch_hedgehog_attention_backward<kittens::bf16>(p, nullptr);
}
