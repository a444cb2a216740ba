// mamba2: what the host passes to the launchers. No torch, no device code.
// (thunderkittens/kernels/mamba2.h: what the op computes.)
#pragma once

#include <cstdint>

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/mamba2.h"

namespace thunderkittens {

// A result of which a row belongs to each token and head, [batch, length, heads, …], contiguous.
struct mamba2_rows {
  void* data;     // or null: not wanted
  int64_t words;  // of 4 bytes, of a row
};

// steps = clamp(softplus(dt + dt_bias), dt_min, dt_max), log_decay = steps · a. Where sequences are
// packed, both are 0 for a token of none, and so are its rows of what later launches write for the
// others.
struct mamba2_gates_params {
  const void* dt;  // [batch, length, heads] of `type`, by strides
  linear_attention_strides dt_strides;
  const float* dt_bias;  // [heads]; or null: 0
  const float* a;        // [heads]
  float* steps;          // [batch, heads, length], contiguous
  float* log_decay;      // the same
  int64_t batch, length, heads;
  float dt_min, dt_max;
  bool softplus;
  dtype type;
  const void* cu_seqlens;  // [sequences + 1] of int32, or of int64; or null: not packed
  bool int64_seqlens;
  int64_t sequences;
  mamba2_rows results[6];
};

// The gradients of dt, A and dt_bias. Of tokens of no sequence they are 0.
struct mamba2_gate_gradients_params {
  const float* d_log_decay;  // [batch, length, heads], contiguous
  const float* d_weights;    // [batch, length, heads, parts], contiguous, to be added up: of dt'
  const void* dt;            // [batch, length, heads] of `type`, by strides
  linear_attention_strides dt_strides;
  const float* dt_bias;  // [heads]; or null: 0
  const float* a;        // [heads]
  const float* steps;    // [batch, heads, length], contiguous
  void* d_dt;            // [batch, length, heads] of `type`, contiguous; or null
  float *d_a, *d_bias;   // [batch, tiles, heads], sums over tiles of tokens; or null
  int64_t batch, length, heads, parts;
  float dt_min, dt_max;
  bool softplus;
  dtype type;
  const void* cu_seqlens;  // [sequences + 1] of int32, or of int64; or null: not packed
  bool int64_seqlens;
  int64_t sequences;
};

inline constexpr int64_t kMamba2StepWidest = 256;  // of a state's rows

struct mamba2_step_params {
  mamba2_step_problem problem;
  mamba2_step_tensors tensors;
};

inline constexpr kittens::host::kernel_entry<mamba2_gates_params> kMamba2Gates{"mamba2_gates"};
inline constexpr kittens::host::kernel_entry<mamba2_gate_gradients_params> kMamba2GateGradients{
    "mamba2_gate_gradients"};
inline constexpr kittens::host::kernel_entry<mamba2_step_params> kMamba2Step{"mamba2_step"};

}  // namespace thunderkittens
