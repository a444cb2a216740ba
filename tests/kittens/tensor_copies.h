// Kernels that copy one box of a tensor, for tests of tensor copies.
#pragma once

#include <algorithm>

#include "harness.h"
#include "kittens/arch/arch.cuh"
#include "tensors.h"

namespace kittens::testing {

inline constexpr int kThreads = 64;
inline constexpr uint8_t kBefore = 0xe7;  // what is in shared memory before a load
inline constexpr int kBoxOffset = 1024;   // of the box in shared memory; the barrier is at 0

struct corner {
  int at[5];
};

inline corner corner_of(const box_case& b) {
  corner c{};
  std::copy_n(b.corner, 5, c.at);
  return c;
}

inline host::launch_config launch_of(const box_case& b) {
  return {.grid = {1}, .block = {kThreads}, .shared_bytes = kBoxOffset + b.shared_bytes()};
}

// f(c0, c1 …), as many as there are dimensions.
template <int Rank, class F>
KITTENS_DEVICE void with_corner(const corner& c, F f) {
  if constexpr (Rank == 1) f(c.at[0]);
  if constexpr (Rank == 2) f(c.at[0], c.at[1]);
  if constexpr (Rank == 3) f(c.at[0], c.at[1], c.at[2]);
  if constexpr (Rank == 4) f(c.at[0], c.at[1], c.at[2], c.at[3]);
  if constexpr (Rank == 5) f(c.at[0], c.at[1], c.at[2], c.at[3], c.at[4]);
}

template <int Rank, bool EvictFirst = false>
__global__ void loads(const __grid_constant__ arch::tensor_map map, corner c, int bytes,
                      uint8_t* out, int shared_bytes) {
  auto* full = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
  uint8_t* box = arch::dynamic_shared() + kBoxOffset;
  for (int i = arch::thread_id(); i < shared_bytes; i += kThreads) box[i] = kBefore;
  arch::fence_async_proxy();
  arch::sync_block();
  if (arch::thread_id() == 0) {
    arch::tma_prefetch_map(&map);
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
    arch::mbarrier_arrive_expect_bytes(full, bytes);
    with_corner<Rank>(c, [&](auto... at) {
      arch::tma_prefetch(&map, at...);
      if constexpr (EvictFirst) {
        arch::tma_load_evict_first(box, &map, full, at...);
      } else {
        arch::tma_load(box, &map, full, at...);
      }
    });
  }
  arch::sync_block();
  if (arch::thread_id() == 0) return;  // the copy goes on without who asked for it
  arch::mbarrier_wait(full, 0);
  for (int i = arch::thread_id() - 1; i < shared_bytes; i += kThreads - 1) out[i] = box[i];
}

template <int Rank, bool Adds>
__global__ void stores(const __grid_constant__ arch::tensor_map map, corner c, int bytes,
                       const uint8_t* in) {
  uint8_t* box = arch::dynamic_shared() + kBoxOffset;
  for (int i = arch::thread_id(); i < bytes; i += kThreads) box[i] = in[i];
  arch::fence_async_proxy();
  arch::sync_block();
  if (arch::thread_id() != 0) return;
  with_corner<Rank>(c, [&](auto... at) {
    if constexpr (Adds) {
      arch::tma_store_add(&map, box, at...);
    } else {
      arch::tma_store(&map, box, at...);
    }
  });
  arch::bulk_commit();
  arch::bulk_wait<0>();
}

}  // namespace kittens::testing
