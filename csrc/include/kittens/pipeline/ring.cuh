// ring: the semaphores of a ring of stages, through which a producer hands tiles to consumers.
//
//   struct shared { st_bf<128, 64> tile[4]; ring<4> stages; };
//   if (arch::thread_id() == 0) s.stages.init(2);           // two groups consume; then sync_block
//
//   cursor<4> at;                                           both
//
//   producer, one thread                                    consumer, each of two groups
//     for (…; at.advance()) {                                 for (…; at.advance()) {
//       s.stages.wait_empty(at);                                s.stages.wait_full(at);
//       s.stages.expect(at, tma::bytes<st_bf<128, 64>>);        … read s.tile[at.stage] …
//       tma::load_async(s.tile[at.stage], map,                  if (one thread of the group)
//                       s.stages.full[at.stage], …);              s.stages.release(at);
//     }                                                       }
//
// Before the release all of the group must have read the tile: wgmma's reads have ended after
// warpgroup::mma_async_wait, which all four warps pass together; ordinary reads need a
// group<N>::sync before the release.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mbarrier.cuh"
#include "kittens/ops/semaphore.cuh"
#include "kittens/types/semaphore.cuh"

namespace kittens {

// Where one goes round the ring. `phase`: the parity of the rounds gone.
template <int Stages>
struct cursor {
  int stage = 0;
  uint32_t phase = 0;

  KITTENS_INLINE void advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <int Stages>
struct ring {
  static_assert(Stages >= 1, "a ring has at least one stage");
  static constexpr int stages = Stages;

  semaphore full[Stages], empty[Stages];

  // One thread, before a barrier of the block. `consumers`: arrivals that make a stage empty;
  // `producers`: arrivals that make it full, besides the bytes.
  KITTENS_DEVICE void init(int consumers, int producers = 1) {
    for (int i = 0; i < Stages; ++i) {
      arch::mbarrier_init(&full[i].barrier, producers);
      arch::mbarrier_init(&empty[i].barrier, consumers);
    }
    arch::fence_mbarrier_init();
  }

  // Producer. Every stage is empty in the first round: its wait is for the phase before the first.
  KITTENS_DEVICE void wait_empty(const cursor<Stages>& at) { wait(empty[at.stage], at.phase ^ 1); }
  KITTENS_DEVICE void expect(const cursor<Stages>& at, int bytes) {
    expect_bytes(full[at.stage], bytes);
  }

  // Consumers. One thread of each group releases; where blocks of a cluster share stages by
  // multicast, it does so at each of them.
  KITTENS_DEVICE void wait_full(const cursor<Stages>& at) { wait(full[at.stage], at.phase); }
  KITTENS_DEVICE void release(const cursor<Stages>& at) { arrive(empty[at.stage]); }
  KITTENS_DEVICE void release_remote(const cursor<Stages>& at, int block_rank) {
    arrive_remote(empty[at.stage], block_rank);
  }
};

}  // namespace kittens
