#include "mamba2.h"

#include "kernels/mamba2/mamba2_step_launch.cuh"

using namespace thunderkittens::mamba2_kernels;

void run_gates(const thunderkittens::mamba2_gates_params& p) {
  const int64_t blocks = (p.batch * p.length * p.heads + kGateThreads - 1) / kGateThreads;
  kittens::host::launch(mamba2_gates<kittens::bf16>, {{blocks}, {kGateThreads}}, nullptr, p);
}

void run_step(const thunderkittens::mamba2_step_params& p) {
  launch_step_of<kittens::bf16>(p, nullptr);
}
