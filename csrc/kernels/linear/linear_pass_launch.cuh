// linear: what the launches of its forms share.
#pragma once

#include "kernels/linear/linear_pass.cuh"
#include "kittens/host/ceil_div.h"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

template <class Config>
void set_arguments(linear_arguments& a, const linear_params& params) {
  const linear_problem& p = params.problem;
  a.tensors = params.tensors;
  a.rows = int(p.rows);
  a.steps = int(host::ceil_div(p.in_features, int64_t{Config::step}));
  a.in_features = int(p.in_features);
  a.out_features = int(p.out_features);
  a.groups = int(host::ceil_div(p.out_features, int64_t{kGroup}));
  a.norm_eps = float(p.norm_eps);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
