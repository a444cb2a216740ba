// hedgehog attention, one token: how the kernel is launched.
#pragma once

#include <cstdint>

#include "kernels/hedgehog_attention/hedgehog_attention_step.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_step_vectors.cuh"
#include "kittens/host/device.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// Whether all rows are vectors of 16 bytes, but those of q, and no wider than those of a
// configuration.
template <class Config>
bool takes(const hedgehog_attention_step_params& params) {
  const hedgehog_attention_step_problem& p = params.problem;
  const hedgehog_attention_step_tensors& t = params.tensors;
  if (p.head_dim > Config::width || p.value_dim > Config::width || p.features > Config::columns) {
    return false;
  }
  const int64_t sizes = p.head_dim | p.value_dim | p.features | p.k_strides.batch |
                        p.k_strides.head | p.v_strides.batch | p.v_strides.head;
  const auto place = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  const uintptr_t places = place(t.kv_state) | place(t.k_cache) | place(t.v_cache) | place(t.k) |
                           place(t.v) | place(t.q_map) | place(t.k_map);
  return sizes % Config::run == 0 && sizes % Config::state_run == 0 && places % 16 == 0;
}

template <class Config>
void launch_vectors(const hedgehog_step_arguments& a, int64_t blocks, host::stream s) {
  static_assert(host::fits_every_architecture(sizeof(hedgehog_vectors_shared<Config>)),
                "a block's shared memory");
  host::launch_programmatic(hedgehog_attention_step_vectors<Config>,
                            {{blocks}, {Config::threads}, sizeof(hedgehog_vectors_shared<Config>)},
                            s, a);
}

template <class T>
void launch_hedgehog_step(const hedgehog_attention_step_params& params, host::stream s) {
  static_assert(host::fits_every_architecture(sizeof(hedgehog_step_shared)),
                "a block's shared memory");
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
  const int64_t blocks = p.batch * p.heads;
  using narrow = hedgehog_vectors_config<T, 64>;
  using wide = hedgehog_vectors_config<T, 128>;
  if (takes<narrow>(params)) return launch_vectors<narrow>(a, blocks, s);
  if (takes<wide>(params)) return launch_vectors<wide>(a, blocks, s);
  host::launch(hedgehog_attention_step<T>, {{blocks}, {kStepThreads}, sizeof(hedgehog_step_shared)},
               s, a);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
