// hedgehog attention, one token: how the kernel is launched.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_step.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class T>
void launch_hedgehog_step(const hedgehog_attention_step_params& params, host::stream s) {
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
  host::launch(hedgehog_attention_step<T>,
               {{p.batch * p.heads}, {kStepThreads}, sizeof(hedgehog_step_shared)}, s, a);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
