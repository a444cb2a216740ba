#include "mamba2_gate_gradients.h"

#include "kernels/mamba2/mamba2_gate_gradients_launch.cuh"

using namespace thunderkittens::mamba2_kernels;

void run(const thunderkittens::mamba2_gate_gradients_params& p) {
  p.parts == 1 ? launch_gate_gradients<mamba2_gate_gradients_config<kittens::bf16, 1>>(p, nullptr)
               : launch_gate_gradients<mamba2_gate_gradients_config<kittens::bf16, 2>>(p, nullptr);
}
