// The kernels of sums of columns.
#include "column_sums.h"

#include "kernels/mlp/column_sums_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::mlp_kernels;

void run(const column_sums_params& p) {
  if (p.problem.type == dtype::float32) return launch_column_sums<float>(p, nullptr);
  launch_column_sums<kittens::bf16>(p, nullptr);
}
