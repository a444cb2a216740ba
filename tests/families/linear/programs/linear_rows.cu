// linear's kernel for Hopper of 17 to 64 rows.
#include "linear.h"

#include "kernels/linear/linear_rows_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::linear_kernels;

void run(const linear_params& p) { launch_rows_type<kittens::bf16>(p, nullptr); }
