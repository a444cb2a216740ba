// ring: the semaphores of a ring of stages, through which a producer hands tiles to consumers.
//
//   struct shared { st_bf<128, 64> tile[4]; ring<4> stages; };
//   if (arch::thread_id() == 0) s.stages.init(2);           // two groups consume; then sync_block
//
//   cursor<4> at;                                           both
//
//   producer, one thread                                    consumer, each of two warpgroups
//     for (…; at.advance()) {                                 for (…; at.advance()) {
//       s.stages.wait_empty(at);                                s.stages.wait_full(at);
//       s.stages.expect(at, tma::bytes<st_bf<128, 64>>);        … wgmma reads s.tile[at.stage] …
//       tma::load_async(s.tile[at.stage], map,                  warpgroup::mma_async_wait<0>();
//                       s.stages.full[at.stage], …);            if (one thread of the warpgroup)
//     }                                                           s.stages.release_after_mma(at);
//                                                             }
//
// How a stage is given back depends on what has read it, since the copy that overwrites it works
// in the asynchronous proxy:
//
//   release_after_mma(at)        wgmma alone. It reads in that proxy too, and its reads have ended
//                                after mma_async_wait. One thread arrives.
//   release_after_loads<N>(at)   ordinary loads, also ldmatrix. All threads of the group of N warps
//                                call: each fences, they meet, one arrives. An arrive does not wait
//                                for loads under way, and what orders them before another thread's
//                                ordinary stores does not order them before the copy: without the
//                                fence it may overtake them (docs/simulator.md, "Memory model").
#pragma once

#include <cstdint>

#include "kittens/arch/barrier.cuh"
#include "kittens/arch/fence.cuh"
#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mbarrier.cuh"
#include "kittens/arch/thread.cuh"
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

  // Consumers. One arrival of each group gives a stage back; where blocks of a cluster share stages
  // by multicast, one at each of them. `barrier`: a named barrier of the group's, if it is more
  // than one warp.
  KITTENS_DEVICE void wait_full(const cursor<Stages>& at) { wait(full[at.stage], at.phase); }
  KITTENS_DEVICE void release_after_mma(const cursor<Stages>& at) { arrive(empty[at.stage]); }
  KITTENS_DEVICE void release_remote_after_mma(const cursor<Stages>& at, int block_rank) {
    arrive_remote(empty[at.stage], block_rank);
  }
  template <int Warps = 1>
  KITTENS_DEVICE void release_after_loads(const cursor<Stages>& at, int barrier = 0) {
    finish_loads<Warps>(barrier);
    if (arch::thread_id() % (Warps * arch::kWarpThreads) == 0) arrive(empty[at.stage]);
  }
  // At the first `blocks` blocks of the cluster.
  template <int Warps = 1>
  KITTENS_DEVICE void release_remote_after_loads(const cursor<Stages>& at, int blocks,
                                                 int barrier = 0) {
    finish_loads<Warps>(barrier);
    const int rank = arch::thread_id() % (Warps * arch::kWarpThreads);
    if (rank < blocks) arrive_remote(empty[at.stage], rank);
  }

 private:
  template <int Warps>
  KITTENS_DEVICE static void finish_loads(int barrier) {
    arch::fence_async_proxy();
    if constexpr (Warps == 1) {
      arch::sync_warp();
    } else {
      arch::named_barrier_sync(barrier, Warps * arch::kWarpThreads);
    }
  }
};

}  // namespace kittens
