// linear: how its generic kernel is launched.
#pragma once

#include "kernels/linear/linear_generic.cuh"
#include "kernels/linear/linear_pass_launch.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_linear_generic_form(const linear_params& p, host::stream s) {
  using shared = linear_generic_shared<Config>;
  check_form<Config, shared>();
  linear_generic_arguments a{};
  set_arguments<Config>(a, p);
  a.x_stride = p.problem.x_stride;
  a.weight_stride = weight_stride_bytes<Config>(p.problem);
  a.weight_bytes = int(weight_row_bytes<Config>(p.problem));
  const constant_parts<Config> constant(p);
  host::launch_programmatic(linear_generic<Config>,
                            {.grid = {blocks_of<Config>(p)},
                             .block = {Config::warps * kWarp},
                             .shared_bytes = sizeof(shared),
                             .constant = constant.ranges()},
                            s, a);
}
template <class Config>
void launch_linear_generic(const linear_params& p, host::stream s) {
  with_form_for_weight<Config>(p.problem,
                               [&]<class Form> { launch_linear_generic_form<Form>(p, s); });
}

// At least one element of y, and of the sum that it is.
template <class T>
void launch_generic_type(const linear_params& p, host::stream s) {
  if (p.problem.gated) return launch_linear_generic<linear_generic_config<T, true>>(p, s);
  launch_linear_generic<linear_generic_config<T, false>>(p, s);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
