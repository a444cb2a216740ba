// Where GENERIC is 1, the generic kernel; else that for Hopper.
#include "hedgehog_attention_backward.h"

#if GENERIC
#include "kernels/hedgehog_attention/hedgehog_attention_generic_backward_launch.cuh"
#else
#include "kernels/hedgehog_attention/hedgehog_attention_backward_launch.cuh"
#endif

void run(const thunderkittens::hedgehog_attention_backward_params& p) {
  using namespace thunderkittens::hedgehog_attention_kernels;
#if GENERIC
  launch_hedgehog_attention_generic_backward<kittens::bf16>(p, nullptr);
#else
  launch_hedgehog_attention_backward<kittens::bf16>(p, nullptr);
#endif
}
