// One token of linear attention: the choice of a configuration, and its launch.
#pragma once

#include "kernels/linear_attention/linear_attention_step.cuh"
#include "kittens/host/device.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_step(const linear_attention_step_params& params, host::stream s) {
  static_assert(host::fits_every_architecture(sizeof(linear_attention_step_shared<Config>)),
                "a block's shared memory");
  const linear_attention_step_problem& p = params.problem;
  const int64_t parts = (p.value_width + Config::columns - 1) / Config::columns;
  host::launch_programmatic(linear_attention_step<Config>,
                            {{p.batch * p.heads * parts},
                             {Config::threads},
                             sizeof(linear_attention_step_shared<Config>)},
                            s, params, static_cast<int>(p.heads / p.key_heads),
                            static_cast<float>(p.scale));
}

// Whether the runs of 4 floats of all states start at multiples of 16 bytes.
inline bool has_whole_runs(const linear_attention_step_params& params) {
  const linear_attention_step_problem& p = params.problem;
  const int64_t places = p.value_width | p.state_stride | p.state_head_stride | p.state_key_stride;
  return places % 4 == 0 && reinterpret_cast<uintptr_t>(params.tensors.state) % 16 == 0;
}

template <class T>
void launch_step_of(const linear_attention_step_params& params, host::stream s) {
  if (!has_whole_runs(params)) return launch_step<linear_attention_step_config<T, 1, 8>>(params, s);
  if (params.problem.key_width <= 64) {
    return launch_step<linear_attention_step_config<T, 4, 4>>(params, s);
  }
  launch_step<linear_attention_step_config<T, 4, 8>>(params, s);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
