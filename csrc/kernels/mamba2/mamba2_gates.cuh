// mamba2: the gates, of which a thread has one.
//
//   dt [B, S, H] by strides → dt' and dt' A, [B, H, S] of float32
//
// Where sequences are packed, it also clears what belongs to none of them: linear attention's
// kernel writes their tokens alone.
//
// Linear attention loads a chunk's tokens side by side: with those of [B, S, H] it takes 10 %
// longer. (The forward's kernel for pairs of heads makes them itself: linear_attention_gates.cuh.)
#pragma once

#include <kittens.cuh>

#include "kernels/linear_attention/linear_attention_steps.cuh"
#include "kernels/mamba2/mamba2.h"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {

using namespace kittens;
using linear_attention_kernels::softplus;
using linear_attention_kernels::step_of;

inline constexpr int kGateThreads = 256;

struct token_range {
  int64_t start, end;

  KITTENS_DEVICE bool has(int64_t token) const { return start <= token && token < end; }
};

// The tokens that are of a sequence: of one that is packed, if any are.
template <class Params>
KITTENS_DEVICE token_range tokens_of_sequences(const Params& p) {
  if (p.cu_seqlens == nullptr) return {0, p.length};
  const auto end = [&](int64_t i) {
    return p.int64_seqlens ? arch::load_global(static_cast<const int64_t*>(p.cu_seqlens) + i)
                           : arch::load_global(static_cast<const int*>(p.cu_seqlens) + i);
  };
  return {end(0), end(p.sequences)};
}

// Zeros in a row of each result.
KITTENS_DEVICE void clear_rows(const mamba2_gates_params& p, int64_t row) {
  for (const mamba2_rows& rows : p.results) {
    if (rows.data == nullptr) continue;
    uint32_t* const words = static_cast<uint32_t*>(rows.data) + row * rows.words;
    for (int64_t i = 0; i < rows.words; ++i) arch::store_global(words + i, 0u);
  }
}

template <class T>
__global__ void __launch_bounds__(kGateThreads)
    mamba2_gates(const __grid_constant__ mamba2_gates_params p) {
  const int64_t place = int64_t{arch::block_x()} * kGateThreads + arch::thread_id();
  if (place >= p.batch * p.length * p.heads) return;
  const int64_t stream = place / p.length, head = stream % p.heads, token = place % p.length;
  if (!tokens_of_sequences(p).has(token)) {
    arch::store_global(p.steps + place, 0.0f);
    arch::store_global(p.log_decay + place, 0.0f);
    return clear_rows(p, token * p.heads + head);  // of the only batch
  }
  const T* const from = static_cast<const T*>(p.dt) + stream / p.heads * p.dt_strides.batch +
                        token * p.dt_strides.token + head * p.dt_strides.head;
  float dt = convert<float>(arch::load_global(from));
  if (p.dt_bias != nullptr) dt += arch::load_global(p.dt_bias + head);
  const float step = step_of(dt, p.softplus, p.dt_min, p.dt_max);
  arch::store_global(p.steps + place, step);
  arch::store_global(p.log_decay + place, step * arch::load_global(p.a + head));
}

}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
