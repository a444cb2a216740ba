// hedgehog attention, backward: sums of what blocks of threads have left.
// (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_tile.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

inline constexpr int kSumThreads = 256;

// ---- States of blocks, of the generic kernel ----------------------------------------------------

template <class T>
struct hedgehog_states_arguments {
  T* states;    // [B · H, blocks, features, values]
  float* sums;  // [B · H, blocks, features]
  int blocks;
};

// Blocks of threads a head: each thread adds up two neighbours of the state; and the sums.
inline constexpr int kStateParts = kWidth * kWidth / 2 / kSumThreads;
inline constexpr int kStateBlocks = kStateParts + 1;

// f(what is there) gives what is to be there, for the slots of a head in the order of the sum; but
// slots 0 and 1, of queries without keys in their state, are zeros, and nobody reads them in the
// end.
template <bool Reverse, class V, class F>
KITTENS_DEVICE void for_each_slot(V* slots, int64_t apart, int blocks, F f) {
  constexpr int kAhead = 8;  // loads that are under way
  if (!Reverse) {
    for (int b = 0; b < 2 && b < blocks; ++b) arch::store_global(slots + b * apart, V{});
  }
  const int64_t next = Reverse ? -apart : apart;
  V* at = slots + (Reverse ? blocks - 1 : 2) * apart;
  int left = blocks - 2;
#pragma unroll 1
  for (; left >= kAhead; left -= kAhead, at += kAhead * next) {
    V values[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) values[i] = arch::load_global(at + i * next);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) arch::store_global(at + i * next, f(values[i]));
  }
#pragma unroll 1
  for (; left > 0; --left, at += next) arch::store_global(at, f(arch::load_global(at)));
}

// Each slot becomes the sum of those up to it; Reverse: from it on.
template <class T, bool Reverse>
__global__ void __launch_bounds__(kSumThreads)
    hedgehog_attention_states(const __grid_constant__ hedgehog_states_arguments<T> p) {
  const int64_t head = arch::block_x() / kStateBlocks;
  const int part = arch::block_x() % kStateBlocks, thread = arch::thread_id();
  if (part < kStateParts) {
    constexpr int kWords = kWidth * kWidth / 2;
    float x = 0, y = 0;
    auto* const words = reinterpret_cast<uint32_t*>(p.states) + head * p.blocks * kWords;
    for_each_slot<Reverse>(words + part * kSumThreads + thread, kWords, p.blocks,
                           [&](uint32_t word) {
                             float a, b;
                             unpack<T>(a, b, word);
                             x += a;
                             y += b;
                             return pack<T>(x, y);
                           });
  } else if (thread < kWidth) {
    float sum = 0;
    for_each_slot<Reverse>(p.sums + head * p.blocks * kWidth + thread, kWidth, p.blocks,
                           [&](float x) { return sum += x; });
  }
}

// ---- Gradients of maps and weights --------------------------------------------------------------

template <class T>
struct hedgehog_finish_arguments {
  const float* map_parts[2];  // of q's map and k's: [parts, H, kWidth, kHalf]
  const float* weight_parts;  // [parts, H]
  const float* alpha;         // [H]
  const float* beta;
  T* d_maps[2];  // [H, head_dim, kHalf]; each null where it is not wanted
  float* dalpha;
  float* dbeta;
  int parts, heads, head_dim;
};

inline constexpr int kMapParts = kWidth * kHalf / kSumThreads;  // blocks of threads a map
inline constexpr int kFinishBlocks = 2 * kMapParts + 1;         // … a head

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    hedgehog_attention_finish(const __grid_constant__ hedgehog_finish_arguments<T> p) {
  const int head = arch::block_x() / kFinishBlocks, block = arch::block_x() % kFinishBlocks;
  const auto sum_of = [&](const float* parts, int64_t apart) {
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < p.parts; ++i) sum += arch::load_global(parts + i * p.heads * apart);
    return sum;
  };
  if (block < 2 * kMapParts) {
    constexpr int64_t kSize = kWidth * kHalf;
    const int which = block / kMapParts;
    const int of_head = block % kMapParts * kSumThreads + arch::thread_id();
    if (p.d_maps[which] == nullptr || of_head >= p.head_dim * kHalf) return;
    arch::store_global(p.d_maps[which] + int64_t{head} * p.head_dim * kHalf + of_head,
                       convert<T>(sum_of(p.map_parts[which] + head * kSize + of_head, kSize)));
  } else if (arch::thread_id() == 0) {
    const float x = sum_of(p.weight_parts + head, 1);
    if (p.dalpha != nullptr) {
      arch::store_global(p.dalpha + head, -arch::load_global(p.beta + head) * x);
    }
    if (p.dbeta != nullptr) {
      arch::store_global(p.dbeta + head, arch::load_global(p.alpha + head) * x);
    }
  }
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
