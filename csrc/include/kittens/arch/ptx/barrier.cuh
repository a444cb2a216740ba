// arch/barrier.cuh on the device.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/thread.cuh"

namespace kittens::arch {

KITTENS_DEVICE void sync_block() { __syncthreads(); }

KITTENS_DEVICE void sync_warp(unsigned mask = kAllLanes) { __syncwarp(mask); }

// PTX ISA, Parallel Synchronization and Communication Instructions: bar, barrier. bar.sync is
// barrier.cta.sync.aligned.
KITTENS_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same section.
KITTENS_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace kittens::arch
