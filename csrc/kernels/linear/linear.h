// linear: what the host passes to the launcher. No torch, no device code.
// (thunderkittens/kernels/linear.h: what the op computes.)
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/linear.h"

namespace thunderkittens {

inline constexpr int kLinearGroup = 16;  // columns of y that a block has, or multiples of them

struct linear_params {
  linear_problem problem;
  linear_tensors tensors;
  int blocks;  // at most as many as groups
};

inline constexpr kittens::host::kernel_entry<linear_params> kLinear{"linear"};

}  // namespace thunderkittens
