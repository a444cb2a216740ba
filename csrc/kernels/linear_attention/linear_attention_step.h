// One token of linear attention: what the host passes to the launcher. No torch, no device code.
// (thunderkittens/kernels/linear_attention.h: what the op computes.)
#pragma once

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/linear_attention.h"

namespace thunderkittens {

inline constexpr int kLinearAttentionStepKeys = 256;   // at most
inline constexpr int kLinearAttentionStepValues = 32;  // columns of the state that a block updates

struct linear_attention_step_params {
  linear_attention_step_problem problem;
  linear_attention_step_tensors tensors;
};

inline constexpr kittens::host::kernel_entry<linear_attention_step_params> kLinearAttentionStep{
    "linear_attention_step"};

}  // namespace thunderkittens
