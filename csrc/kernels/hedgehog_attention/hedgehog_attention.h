// hedgehog attention: what the host passes to the launcher. No torch, no device code.
// (thunderkittens/kernels/hedgehog_attention.h: what the op computes.)
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/hedgehog_attention.h"

namespace thunderkittens {

inline constexpr int64_t kHedgehogBlock = 64;       // tokens
inline constexpr int64_t kHedgehogHeadDim = 128;    // of q and k, and of v, at most
inline constexpr int64_t kHedgehogColumnStep = 8;   // they are multiples of
inline constexpr int64_t kHedgehogMapColumns = 64;  // half as many as features

struct hedgehog_attention_params {
  hedgehog_attention_problem problem;
  hedgehog_attention_tensors tensors;
  float* part_kv;   // [parts, batch, heads, 128, value_dim], or of Hopper's kernel 128 · 128 values
  float* part_sum;  // [parts, batch, heads, 128]; or both null: one segment
  int64_t segment_blocks;
  int64_t part_blocks;  // of a segment's parts, of which all segments but the last have some
};

// T is `type`. Of the generic kernel each block has a state, and of Hopper's each part of a run,
// where there are several: its elements lie as threads have them
// (hedgehog_attention_gradient.cuh). Columns that a head does not have are zeros.
struct hedgehog_attention_backward_params {
  hedgehog_attention_backward_problem problem;
  hedgehog_attention_backward_tensors tensors;
  void* states;         // T [batch, heads, blocks, 128, 128], or float [parts, batch, heads, 16384]
  float* state_sums;    // [batch, heads, blocks, 128], or [parts, batch, heads, 128]
  void* factors;        // float4 [batch, heads, blocks · 64]
  float* q_map_parts;   // [batch, runs, heads, 128, 64]
  float* k_map_parts;   // the same
  float* weight_parts;  // [batch, runs, heads]
  int64_t run_blocks;
  int64_t part_blocks;  // of a run's parts, of which all runs but one have some
};

struct hedgehog_attention_step_params {
  hedgehog_attention_step_problem problem;
  hedgehog_attention_step_tensors tensors;
};

inline constexpr int64_t kHedgehogStepWidth = 256;  // of heads at most, and of features

inline constexpr kittens::host::kernel_entry<hedgehog_attention_params> kHedgehogAttention{
    "hedgehog_attention"};
inline constexpr kittens::host::kernel_entry<hedgehog_attention_backward_params>
    kHedgehogAttentionBackward{"hedgehog_attention_backward"};
inline constexpr kittens::host::kernel_entry<hedgehog_attention_step_params> kHedgehogAttentionStep{
    "hedgehog_attention_step"};

}  // namespace thunderkittens
