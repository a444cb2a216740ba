#include "linear.h"

#include "kernels/linear/linear_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::linear_kernels;

void run(const linear_params& p) { launch_type<kittens::bf16>(p, nullptr); }
