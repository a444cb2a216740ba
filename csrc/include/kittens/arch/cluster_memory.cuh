// Distributed shared memory: what the blocks of a cluster do in each other's shared memory. A place
// there is named by where it is in this block's own, and by the block's rank.
//
//   V load_cluster(const V* p, rank)       V as in arch/memory.cuh
//   store_cluster(V* p, rank, V v)
//   T* map_shared(T* p, rank)              the place's own address, for atomics and for C++
//   bulk_copy_cluster(dst, rank, src, bytes, full)
//                                          from this block's src to dst there, by the copy engine;
//                                          counts its bytes on the mbarrier `full` there. A
//                                          multiple of 16, both sides aligned to 16; in a
//                                          launch without clusters, an illegal instruction
//   mbarrier_arrive_cluster(b, rank, count = 1)
//                                          as mbarrier_arrive_remote, and shows what this thread
//                                          wrote before, to whoever waits by
//   mbarrier_wait_cluster(b, parity)       for this block's own
//
// A block has shared memory from when it runs until all its threads have exited: a kernel passes
// cluster_sync() before it reaches for another block's, and again before it ends. cluster_sync()
// also shows all writes to all blocks of the cluster. A bulk copy's source is free when the copy
// has come, which only the other block sees: it must say so.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mbarrier.cuh"
#include "kittens/arch/memory.cuh"
#include "kittens/arch/shared.cuh"

#if KITTENS_SIMULATED
#include "kittens/arch/sim/cluster_memory.hpp"
#else
#include "kittens/arch/ptx/cluster_memory.cuh"
#endif
