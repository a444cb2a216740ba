// mamba2: the gates.
//
//   dt [B, S, H] by strides → dt' and dt' A, [B, H, S] of float32
//
// Where sequences are packed, it also clears what belongs to none of them: linear attention's
// kernel writes their tokens alone.
//
// Linear attention loads a chunk's tokens side by side: with those of [B, S, H] it takes 10 %
// longer. So a block has a tile of tokens and heads: it reads heads side by side, and writes tokens
// side by side. (The forward's kernel for pairs of heads makes them itself:
// linear_attention_gates.cuh.)
#pragma once

#include <kittens.cuh>

#include "kernels/linear_attention/linear_attention_steps.cuh"
#include "kernels/linear_attention/linear_attention_stream.cuh"
#include "kernels/mamba2/mamba2.h"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {

using namespace kittens;
using linear_attention_kernels::packed_ends;
using linear_attention_kernels::softplus;
using linear_attention_kernels::step_of;

// A block's tile, of which a warp writes a head. T: of dt.
template <class T>
struct mamba2_gates_config {
  using type = T;
  static constexpr int threads = 256, heads = threads / kWarp, tokens = 256;
  static constexpr int apart = threads / heads, of_thread = tokens / apart;  // a thread's tokens
};

template <class Config>
struct mamba2_gates_shared {
  // 4 more, so that a warp's 8 heads of 4 tokens are in different banks.
  float steps[Config::heads][Config::tokens + 4];
};

struct token_range {
  int start, end;

  KITTENS_DEVICE bool has(int token) const { return start <= token && token < end; }
};

// The tokens that are of a sequence: of one that is packed, if any are.
template <class Params>
KITTENS_DEVICE token_range tokens_of_sequences(const Params& p) {
  const int length = static_cast<int>(p.length);
  if (p.cu_seqlens == nullptr) return {0, length};
  const packed_ends ends{p.cu_seqlens, p.int64_seqlens};
  return {ends.at(0, 0, length), ends.at(static_cast<int>(p.sequences), 0, length)};
}

// Zeros in a row of each result.
KITTENS_DEVICE void clear_rows(const mamba2_gates_params& p, int64_t row) {
  for (const mamba2_rows& rows : p.results) {
    if (rows.data == nullptr) continue;
    uint32_t* const words = static_cast<uint32_t*>(rows.data) + row * rows.words;
    for (int64_t i = 0; i < rows.words; ++i) arch::store_global(words + i, 0u);
  }
}

// Grid: batch · (tokens / 256, rounded up) · (heads / 8, rounded up).
template <class Config>
__global__ void __launch_bounds__(Config::threads)
    mamba2_gates(const __grid_constant__ mamba2_gates_params p) {
  using T = typename Config::type;
  auto& shared = *reinterpret_cast<mamba2_gates_shared<Config>*>(arch::dynamic_shared());
  const int heads = static_cast<int>(p.heads), length = static_cast<int>(p.length);
  const int groups = (heads + Config::heads - 1) / Config::heads;
  const int tiles = (length + Config::tokens - 1) / Config::tokens;
  const int of_group = arch::block_x() / groups, batch = of_group / tiles;
  const int first_head = arch::block_x() % groups * Config::heads;
  const int first_token = of_group % tiles * Config::tokens;
  const token_range there = tokens_of_sequences(p);
  {
    const int i = arch::thread_id() % Config::heads, head = first_head + i;
    const int place = arch::thread_id() / Config::heads, first = first_token + place;
    // The last head and token in place of one that is not there: no branch, and no load waits for
    // another.
    const int read_head = head < heads ? head : heads - 1;
    const float bias = p.dt_bias == nullptr ? 0.0f : arch::load_global(p.dt_bias + read_head);
    const T* const from =
        static_cast<const T*>(p.dt) + batch * p.dt_strides.batch + read_head * p.dt_strides.head;
    T dt[Config::of_thread];
#pragma unroll
    for (int n = 0; n < Config::of_thread; ++n) {
      const int token = first + n * Config::apart;
      dt[n] = arch::load_global(from + (token < length ? token : length - 1) * p.dt_strides.token);
    }
#pragma unroll
    for (int n = 0; n < Config::of_thread; ++n) {
      arch::store_shared(&shared.steps[i][place + n * Config::apart],
                         step_of(convert<float>(dt[n]) + bias, p.softplus, p.dt_min, p.dt_max));
    }
    if (p.cu_seqlens != nullptr && head < heads) {
#pragma unroll 1
      for (int n = 0; n < Config::of_thread; ++n) {
        const int token = first + n * Config::apart;
        if (token < length && !there.has(token)) {
          clear_rows(p, int64_t{token} * p.heads + head);  // of the only batch
        }
      }
    }
  }
  arch::sync_block();
  const int i = arch::warp_id(), head = first_head + i;
  if (head >= heads) return;
  const float a = arch::load_global(p.a + head);
  const int first = first_token + arch::lane_id();
  const int64_t place = (batch * p.heads + head) * p.length + first;
#pragma unroll
  for (int n = 0; n < Config::of_thread; ++n) {
    const int token = first + n * kWarp;
    const float step = arch::load_shared(&shared.steps[i][n * kWarp + arch::lane_id()]);
    const bool is_there = there.has(token);
    if (token < length) {
      arch::store_global(p.steps + place + n * kWarp, is_there ? step : 0.0f);
      arch::store_global(p.log_decay + place + n * kWarp, is_there ? step * a : 0.0f);
    }
  }
}

}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
