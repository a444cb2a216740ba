// mamba2, one token: the choice of a configuration, and its launch.
#pragma once

#include "kernels/mamba2/mamba2_step.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {

template <class T, int Run, int Lanes, int Runs, int Rows>
void launch_step_with(const mamba2_step_params& params, host::stream s) {
  using config = mamba2_step_config<T, Run, Lanes, Runs, Rows>;
  const mamba2_step_problem& p = params.problem;
  const int64_t parts = (p.head_width + config::rows_of_block - 1) / config::rows_of_block;
  host::launch_programmatic(mamba2_step<config>, {{p.batch * p.heads * parts}, {config::threads}},
                            s, params);
}

// Whether the runs of 4 floats of all states start at multiples of 16 bytes.
inline bool has_whole_runs(const mamba2_step_params& params) {
  const mamba2_step_problem& p = params.problem;
  const int64_t places = p.state_width | p.state_stride | p.state_head_stride | p.state_row_stride;
  return places % 4 == 0 && reinterpret_cast<uintptr_t>(params.tensors.state) % 16 == 0;
}

template <class T>
void launch_step_of(const mamba2_step_params& params, host::stream s) {
  const int64_t width = params.problem.state_width;
  if (!has_whole_runs(params)) return launch_step_with<T, 1, 32, 8, 1>(params, s);
  if (width <= 32) return launch_step_with<T, 4, 8, 1, 2>(params, s);
  if (width <= 64) return launch_step_with<T, 4, 16, 1, 4>(params, s);
  if (width <= 128) return launch_step_with<T, 4, 32, 1, 4>(params, s);
  launch_step_with<T, 4, 32, 2, 2>(params, s);
}

}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
