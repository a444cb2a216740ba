// linear attention: the anchors of the decays' gradient. (linear_attention_decay_gradient.cuh)
//
// Every 128 or 256 tokens of a sequence, its first one too, the gradient of g is
//
//   dg = ⟨S, dS⟩,   S the state in front of the token, dS the gradient of that state
//
// dq's launch comes by with S in its registers, and leaves it in bf16, whose range float32's is;
// dk's comes by with dS / scale, which a lane has the same elements of, and leaves each warp's part
// of the product. In memory a warp's elements lie as its lanes have them, 16 bytes by 16 bytes.
#pragma once

#include "kernels/linear_attention/linear_attention_state.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// The first slot of a sequence's anchors. Of packed ones they are not too few, and none has two:
// what starts behind n sequences and `start` tokens has at most start / anchor + n anchors in front
// of it. One slot of the first is for tokens in front of all sequences.
KITTENS_DEVICE int first_anchor_slot(bool packed, int sequence, int start, int length, int anchor) {
  return packed ? start / anchor + 1 + sequence : sequence * ((length + anchor - 1) / anchor);
}

// Of 16 bytes, that a lane has of a state.
template <class Config>
inline constexpr int kAnchorVectors = Config::key_width / 16;

// Where those of a head of a sequence begin. In shared memory, for there are no registers to spare.
struct places_of_anchors {
  uint4* states;  // or null: not wanted
  float* products;

  template <class Config>
  KITTENS_DEVICE static places_of_anchors of(const chunkwise_arguments& p, const chunk_stream& s) {
    if (p.anchor_states == nullptr) return {};
    const int slot =
        first_anchor_slot(p.ends.numbers != nullptr, s.sequence, s.start, p.length, p.anchor);
    const int64_t warp = (int64_t{slot} * p.heads + s.head) * p.anchor_warps;
    return {p.anchor_states + warp * kAnchorVectors<Config> * kWarp, p.anchor_products + warp};
  }
};

// With the state in front of a chunk, forward; or its gradient, in reverse: by each warp of
// consumer w, if the chunk's first token is an anchor.
template <class Config>
KITTENS_DEVICE void pass_anchor(const chunkwise_arguments& p, const places_of_anchors& places,
                                int token, int w, const consumer_state<Config>& state) {
  constexpr int kVectors = kAnchorVectors<Config>;
  if (p.anchor_states == nullptr || (token & (p.anchor - 1)) != 0) return;
  if (token == 0 && !p.anchors_first) return;
  const int64_t warp =
      int64_t{token / p.anchor} * p.heads * p.anchor_warps + 4 * w + arch::warp_id() % 4;
  const int lane = arch::lane_id();
  uint4* const at = places.states + warp * kVectors * kWarp + lane;
  if constexpr (!Config::reverse) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float* const x = &state.data[0][8 * i];
      arch::store_global(at + i * kWarp, uint4{pack<bf16>(x[0], x[1]), pack<bf16>(x[2], x[3]),
                                               pack<bf16>(x[4], x[5]), pack<bf16>(x[6], x[7])});
    }
  } else {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const uint4 vector = arch::load_global(at + i * kWarp);
      const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float x, y;
        unpack<bf16>(x, y, words[j]);
        sum = arch::fma(x, state.data[0][8 * i + 2 * j], sum);
        sum = arch::fma(y, state.data[0][8 * i + 2 * j + 1], sum);
      }
    }
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += arch::shuffle_xor(sum, mask);
    if (lane == 0) arch::store_global(places.products + warp, sum * p.final_scale);
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
