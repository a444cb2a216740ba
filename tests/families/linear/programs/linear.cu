#include "linear.h"

#include "kernels/linear/linear_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::linear_kernels;

void run(const linear_params& p) {
  if (p.problem.gated) return launch_in_passes<kittens::bf16, 1, true>(p, nullptr);
  if (p.problem.rows <= 16) return launch_in_passes<kittens::bf16, 1, false>(p, nullptr);
  launch_linear<linear_config<kittens::bf16, 2, 2, false>>(p, nullptr);
}
