// Where GENERIC is 1, the generic kernel; else that for Hopper.
#include "hedgehog_attention.h"

#if GENERIC
#include "kernels/hedgehog_attention/hedgehog_attention_generic_launch.cuh"
#else
#include "kernels/hedgehog_attention/hedgehog_attention_launch.cuh"
#endif

void run(const thunderkittens::hedgehog_attention_params& p) {
  using namespace thunderkittens::hedgehog_attention_kernels;
#if GENERIC
  launch_hedgehog_attention_generic<kittens::bf16>(p, nullptr);
#else
  launch_hedgehog_attention<kittens::bf16>(p, nullptr);
#endif
}
