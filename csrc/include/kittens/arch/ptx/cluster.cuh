// arch/cluster.cuh on the device. PTX ISA, Special Registers (%cluster_ctarank, %cluster_nctarank);
// Parallel Synchronization and Communication Instructions: barrier.cluster.
#pragma once

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

KITTENS_DEVICE int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

KITTENS_DEVICE int cluster_blocks() {
  int blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

KITTENS_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

KITTENS_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

KITTENS_DEVICE void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace kittens::arch
