// What kernels see of the shared memory of a cluster's other blocks: what
// arch/sim/cluster_memory.hpp calls.
#pragma once

#include <cstdint>

#include "sim/api.hpp"

namespace kittens::sim {

// Where p, a place of the calling block's shared memory, is in that of `block_rank`: `bytes` of it,
// a power of two, to which it must be aligned. Reports a rank that is not in the cluster, and a
// block that may not run yet, or not any more.
void* map_shared(const char* name, const void* p, int64_t bytes, int block_rank, call_site site);

// dst and full: of the calling block, and meant for block_rank's.
void bulk_copy_cluster(void* dst, int block_rank, const void* src, int bytes, void* full,
                       call_site site);

}  // namespace kittens::sim
