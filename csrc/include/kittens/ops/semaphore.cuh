// Operations on semaphores (Hopper's mbarrier). A semaphore counts phases: a phase ends when all
// its arrivals have come and all the bytes announced in it have landed; then the next one begins,
// with the same number of arrivals. To wait for phase number n is to wait for parity n % 2, so
// nobody may fall two phases behind.
//
//   if (thread 0) init_semaphore(full, 1);          then arch::sync_block()
//
//   producer (one thread)                           consumers
//     expect_bytes(full, tma::bytes<Tile>);           wait(full, phase);
//     tma::load_async(tile, map, full, at);           … read the tile …
//                                                     phase ^= 1;
//
// What was written before an arrival is seen after the wait. Waiting for phase 1 of a fresh
// semaphore passes at once: as if a phase had ended before the first one.
#pragma once

#include <cstdint>

#include "kittens/arch/mbarrier.cuh"
#include "kittens/types/semaphore.cuh"

namespace kittens {

// One thread initialises, before a barrier of the block (of the cluster, if other blocks arrive).
KITTENS_DEVICE void init_semaphore(semaphore& s, int arrivals) {
  arch::mbarrier_init(&s.barrier, arrivals);
  arch::fence_mbarrier_init();
}

// The memory may be used for something else; nobody waits or arrives any more.
KITTENS_DEVICE void invalidate(semaphore& s) { arch::mbarrier_invalidate(&s.barrier); }

// Counts as `count` arrivals.
KITTENS_DEVICE void arrive(semaphore& s, int count = 1) {
  arch::mbarrier_arrive(&s.barrier, count);
}

// At the semaphore in the same place of another block of the cluster.
KITTENS_DEVICE void arrive_remote(semaphore& s, int block_rank, int count = 1) {
  arch::mbarrier_arrive_remote(&s.barrier, block_rank, count);
}

// Arrives once, and has the phase wait for `bytes` more.
KITTENS_DEVICE void expect_bytes(semaphore& s, int bytes) {
  arch::mbarrier_arrive_expect_bytes(&s.barrier, bytes);
}

// Until the phase of this parity has ended.
KITTENS_DEVICE void wait(semaphore& s, uint32_t phase) { arch::mbarrier_wait(&s.barrier, phase); }

// Whether it has.
KITTENS_DEVICE bool test(semaphore& s, uint32_t phase) {
  return arch::mbarrier_test(&s.barrier, phase);
}

}  // namespace kittens
