// Barriers of a block, of a warp and of some warps. They order the memory accesses of who meets.
//
//   sync_block()                        every thread of the block; a barrier for each of them
//   sync_warp(mask = kAllLanes)         the lanes of `mask`, each of which passes the same mask
//   named_barrier_sync(id, threads)     waits until `threads` threads are at barrier `id`
//   named_barrier_arrive(id, threads)   counts as one of them, but does not wait
//
// id: 1 … 15 (0 is sync_block's). threads: a multiple of 32, the same for all who use the barrier
// at the time; whole warps arrive.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/thread.cuh"

#if KITTENS_SIMULATED
#include "kittens/arch/sim/barrier.hpp"
#else
#include "kittens/arch/ptx/barrier.cuh"
#endif
