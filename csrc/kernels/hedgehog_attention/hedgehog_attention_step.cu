// hedgehog attention, one token: launches, and enters the launcher in the table.
#include "kernels/hedgehog_attention/hedgehog_attention.h"
#include "kernels/hedgehog_attention/hedgehog_attention_step.cuh"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {
namespace {

void launch_step(const hedgehog_attention_step_params& params, kittens::host::stream s) {
  const hedgehog_attention_step_problem& p = params.problem;
  const hedgehog_step_arguments a{
      .tensors = params.tensors,
      .q_strides = p.q_strides,
      .k_strides = p.k_strides,
      .v_strides = p.v_strides,
      .heads = int(p.heads),
      .keys = int(p.head_dim),
      .values = int(p.value_dim),
      .columns = int(p.features),
  };
  const auto run = [&](auto* kernel) {
    kittens::host::launch(
        kernel, {{p.batch * p.heads}, {kStepThreads}, sizeof(hedgehog_step_shared)}, s, a);
  };
  switch (p.type) {
    case dtype::float32: return run(hedgehog_attention_step<float>);
    case dtype::float16: return run(hedgehog_attention_step<half>);
    case dtype::bfloat16: return run(hedgehog_attention_step<bf16>);
  }
}

KITTENS_LAUNCHER(kHedgehogAttentionStep, launch_step);

}  // namespace
}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
