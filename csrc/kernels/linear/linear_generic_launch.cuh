// linear: how its generic kernel is launched.
#pragma once

#include "kernels/linear/linear_generic.cuh"
#include "kernels/linear/linear_pass_launch.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_linear_generic(const linear_params& p, host::stream s) {
  with_form_for_weight<Config>(p.problem, [&]<class Form> {
    launch_copying<Form, linear_generic_shared<Form>>(linear_generic<Form>, {}, p, s);
  });
}

// At least one element of y, and of the sum that it is.
template <class T>
void launch_generic_type(const linear_params& p, host::stream s) {
  if (p.problem.gated) return launch_linear_generic<linear_generic_config<T, true>>(p, s);
  launch_linear_generic<linear_generic_config<T, false>>(p, s);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
