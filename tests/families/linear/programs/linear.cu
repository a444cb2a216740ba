// linear's kernel for Hopper, or where GENERIC is 1 the generic one.
#include "linear.h"

#if GENERIC
#include "kernels/linear/linear_generic_launch.cuh"
#else
#include "kernels/linear/linear_launch.cuh"
#endif

using namespace thunderkittens;
using namespace thunderkittens::linear_kernels;

void run(const linear_params& p) {
#if GENERIC
  launch_generic_type<kittens::bf16>(p, nullptr);
#else
  launch_type<kittens::bf16>(p, nullptr);
#endif
}
