// hedgehog attention: the states of parts, added up. Where heads are few, sequences are cut into
// segments (of the backward: runs), which are worked on side by side. Each but the one that nothing
// follows is cut further, into parts: a launch leaves the state that each part adds, in a slot of
// its own, this one adds up what is before each segment's end, and a last one begins with that.
// Where slots are few, there is no such launch: that costs more than it saves.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_tile.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

inline constexpr int kPassingThreads = 256;
inline constexpr int kFewestSlotsPassed = 9;

struct state_passing_arguments {
  float4* states;  // [slots, B · H, features, values], in any order within a slot
  float4* sums;    // [slots, B · H, features]
  int64_t state_vectors, sum_vectors;  // of a slot, float4
  int slots, parts;                    // of all segments, and of one
};

// The last slot of each segment becomes the sum of all slots up to it; Reverse: the first slot that
// of all slots from it on. The others stay as they are.
template <bool Reverse>
__global__ void __launch_bounds__(kPassingThreads)
    hedgehog_attention_state_passing(const __grid_constant__ state_passing_arguments p) {
  constexpr int kAhead = 8;  // loads that are under way
  int64_t at = int64_t{arch::block_x()} * kPassingThreads + arch::thread_id();
  if (at >= p.state_vectors + p.sum_vectors) return;
  const bool is_of_sums = at >= p.state_vectors;
  const int64_t apart = is_of_sums ? p.sum_vectors : p.state_vectors;
  float4* const slots = is_of_sums ? p.sums + (at - p.state_vectors) : p.states + at;
  const auto slot = [&](int i) { return Reverse ? p.slots - 1 - i : i; };
  float4 sum = {};
#pragma unroll 1
  for (int first = 0; first < p.slots; first += kAhead) {
    float4 more[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i < p.slots) more[i] = arch::load_global(slots + slot(first + i) * apart);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= p.slots) break;
      sum = {sum.x + more[i].x, sum.y + more[i].y, sum.z + more[i].z, sum.w + more[i].w};
      if ((first + i + 1) % p.parts == 0) {
        arch::store_global(slots + slot(first + i) * apart, sum);
      }
    }
  }
}

template <bool Reverse>
void launch_state_passing(const state_passing_arguments& a, host::stream s) {
  const int64_t vectors = a.state_vectors + a.sum_vectors;
  host::launch(hedgehog_attention_state_passing<Reverse>,
               {{host::ceil_div(vectors, kPassingThreads)}, {kPassingThreads}}, s, a);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
