// AdamW: what the host passes to the launchers. No torch, no device code.
// (thunderkittens/kernels/adamw.h: what is computed.)
#pragma once

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/adamw.h"

namespace thunderkittens {

// What a block does at once; its elements belong to one tensor. 8 a thread.
inline constexpr int kAdamwChunk = 2048;
// Partial sums of one launch of the norm, whatever the GPU: so the norm has the same bits on all.
// 8 blocks for each of the 132 multiprocessors of an H100.
inline constexpr int kAdamwNormBlocks = 1056;

struct adamw_entry : adamw_addresses {
  int64_t size;     // elements
  int first_chunk;  // the sum of the chunks of those before it
  bool aligned;     // whether runs of 16 bytes of all of them start at multiples of 16
};

// A launch's tensors: parameters of its kernel, of which CUDA takes 32,764 bytes. (In the norm they
// have a grad alone.)
struct adamw_table {
  adamw_entry entries[kAdamwTensors];
  int tensors;
  int chunks;
};

struct adamw_norm_params {
  adamw_table table;
  float* partial;  // [blocks of this and the launches before it]
  float* norm;     // [1], written by the last launch, null in those before it
  int* counter;    // [1], 0
  int first;       // the partial sum of block 0
  bool more;       // norm² is added
  dtype type;
};

struct adamw_update_params {
  adamw_table table;
  const float *lr, *norm;      // [1] or null
  int *skipped, *counter;      // [1]; skipped may be null, in all launches but the last it is
  float lr_value, step;        // where it is not on the device
  float beta1, beta2;          // of which the logarithms are those of the doubles
  float rest1, rest2;          // 1 − β
  float log_beta1, log_beta2;  // natural
  float eps, weight_decay;
  float sign, max_norm;  // infinity: not clipped
  bool skip_nonfinite, stochastic_rounding, master_weights;
  uint64_t seed;
  dtype type, moments;
};

inline constexpr kittens::host::kernel_entry<adamw_norm_params> kAdamwNorm{"adamw_norm"};
inline constexpr kittens::host::kernel_entry<adamw_update_params> kAdamwUpdate{"adamw_update"};

}  // namespace thunderkittens
