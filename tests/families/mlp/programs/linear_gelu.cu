// The kernels of both products.
#include "linear_gelu.h"

#include "kernels/mlp/linear_gelu_launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::mlp_kernels;

void run(const linear_gelu_params& p) { launch_linear_gelu_type<kittens::bf16>(p, nullptr); }
void run(const linear_gelu_backward_params& p) {
  launch_linear_gelu_backward_type<kittens::bf16>(p, nullptr);
}
