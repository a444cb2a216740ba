// quantized_linear's kernel: where E4M3 is 1 of such weights, else of int4.
#include "linear.h"

#include "kernels/linear/linear_generic_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::linear_kernels;

void run(const linear_params& p) {
#if E4M3
  if (p.problem.type == dtype::float16) {
    return launch_generic_type<kittens::half, linear_e4m3<kittens::half>>(p, nullptr);
  }
  launch_generic_type<kittens::bf16, linear_e4m3<kittens::bf16>>(p, nullptr);
#else
  if (p.problem.type == dtype::float16) {
    return launch_generic_type<kittens::half, linear_int4<kittens::half>>(p, nullptr);
  }
  launch_generic_type<kittens::bf16, linear_int4<kittens::bf16>>(p, nullptr);
#endif
}
