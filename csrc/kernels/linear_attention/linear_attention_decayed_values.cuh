// linear attention: the values of a chunk, as the state and o take them.
// (linear_attention_chunkwise.cuh, linear_attention_warp_specialized.cuh)
#pragma once

#include <type_traits>

#include "kernels/linear_attention/linear_attention_decays.cuh"
#include "kernels/linear_attention/linear_attention_tile.cuh"
#include "kernels/linear_attention/linear_attention_values.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class T>
using decayed_values = rt<T, 16, kChunk>;  // vᵀ: [values, tokens]

// Times the factors of the chunk's tokens.
KITTENS_DEVICE void decay_values(decayed_values<bf16>& v,
                                 const factors_of_pair (&of_pairs)[kChunk / 2]) {
#pragma unroll
  for (int i = 0; i < kChunk / 8; ++i) {  // of 8 tokens
    const factors_of_pair factors = arch::load_shared(&of_pairs[4 * i + arch::lane_id() % 4]);
    v.data[0][2 * i] = factors.times(v.data[0][2 * i]);
    v.data[0][2 * i + 1] = factors.times(v.data[0][2 * i + 1]);
  }
}

// vᵀ, as an operand in registers, decayed from each token to the chunk's end in the recurrence.
template <class T>
KITTENS_DEVICE void load_decayed_values(decayed_values<T>& v, const st<T, kChunk, kValues>& tile,
                                        const decays_of_tokens<kChunk>& decays) {
  load_values(v, tile, arch::warp_id() % 4 * 16);
  if constexpr (std::is_same_v<T, bf16>) {
    decay_values(v, decays.to_end_of_pairs);
  } else {
    rt_fl<16, kChunk>::row_vec to_end;
    load(to_end, decays.to_end);
    mul_col(v, v, to_end);
  }
}

// o += skip · v.
template <class T>
KITTENS_DEVICE void add_skipping(rt_fl<16, kValues>& o, float skip, const rt<T, 16, kValues>& v) {
#pragma unroll
  for (int i = 0; i < kValues / 4; ++i) {
    float x, y;
    unpack<T>(x, y, v.data[0][i]);
    o.data[0][2 * i] = fmaf(skip, x, o.data[0][2 * i]);
    o.data[0][2 * i + 1] = fmaf(skip, y, o.data[0][2 * i + 1]);
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
