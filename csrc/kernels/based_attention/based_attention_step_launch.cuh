// One token of based_attention: the choice of a configuration, and its launch.
#pragma once

#include <cmath>

#include "kernels/based_attention/based_attention_step.cuh"
#include "kittens/host/device.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_based_step(const based_attention_step_params& params, host::stream s) {
  static_assert(host::fits_every_architecture(sizeof(based_attention_step_shared<Config>)),
                "a block's shared memory");
  const based_attention_step_problem& p = params.problem;
  host::launch_programmatic(
      based_attention_step<Config>,
      {{p.batch * p.heads}, {Config::threads}, sizeof(based_attention_step_shared<Config>)}, s,
      params, static_cast<float>(p.scale), static_cast<float>(std::sqrt(p.scale)),
      static_cast<float>(p.eps));
}

// Whether the runs of 4 floats of all states start at multiples of 16 bytes.
inline bool has_whole_runs(const based_attention_step_params& params) {
  const based_attention_step_problem& p = params.problem;
  const int64_t places = p.value_width | p.state_stride | p.state_head_stride | p.state_row_stride;
  return places % 4 == 0 && reinterpret_cast<uintptr_t>(params.tensors.state) % 16 == 0;
}

template <class T>
void launch_based_step_of(const based_attention_step_params& params, host::stream s) {
  if (has_whole_runs(params)) {
    return launch_based_step<based_attention_step_config<T, 4, 64, 10>>(params, s);
  }
  launch_based_step<based_attention_step_config<T, 1, 32, 10>>(params, s);
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
