// Clusters: some blocks that run at the same time, and reach each other's shared memory.
// launch_config::cluster says how many; a launch without has clusters of one block.
//
//   int cluster_rank()     this block's place in its cluster: block_x() % cluster_blocks()
//   int cluster_blocks()   blocks of the cluster
//   cluster_arrive()       this thread arrives at the cluster's barrier; all threads of a warp do
//   cluster_wait()         until all threads of the cluster have arrived that have not exited
//   cluster_sync()         both
//
// The barrier orders what was written before it, as all of the cluster see it. Shared memory ends
// with its block: a cluster whose blocks arrive at each other's barriers or copy to each other ends
// with cluster_sync().
#pragma once

#include "kittens/arch/keywords.cuh"

#if KITTENS_SIMULATED
#include "kittens/arch/sim/cluster.hpp"
#else
#include "kittens/arch/ptx/cluster.cuh"
#endif
