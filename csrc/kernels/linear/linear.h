// linear: what the host passes to the launcher. No torch, no device code.
// (thunderkittens/kernels/linear.h: what the op computes.)
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/linear.h"

namespace thunderkittens {

inline constexpr int kLinearGroup = 16;  // columns of y that a block has, or multiples of them
// Of a block of the generic kernel, at most. So two fit on a multiprocessor of sm_80, whose 164 KB
// have 1 KB of each block's beside it.
inline constexpr int kLinearGenericSharedBytes = 81 * 1024;

struct linear_params {
  linear_problem problem;
  linear_tensors tensors;
  int blocks;          // where each has a multiprocessor to itself; at most as many as groups
  int generic_blocks;  // where several of the generic kernel share one; the same
};

inline constexpr kittens::host::kernel_entry<linear_params> kLinear{"linear"};
inline constexpr kittens::host::kernel_entry<linear_params> kLinearRows{
    "linear_rows"};  // of more than linear_problem::kFewRows
inline constexpr kittens::host::kernel_entry<linear_params> kQuantizedLinear{"quantized_linear"};

}  // namespace thunderkittens
