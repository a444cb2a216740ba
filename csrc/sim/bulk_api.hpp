// The rest of what kernels see of the simulator: barriers in shared memory, bulk copies, clusters.
#pragma once

#include <cstdint>

#include "sim/api.hpp"
#include "sim/tensor_map.hpp"

namespace kittens::sim {

// ---- mbarriers; `barrier` points at their 8 bytes of shared memory
void mbarrier_init(void* barrier, int arrivals, call_site site);
void mbarrier_invalidate(void* barrier, call_site site);
void fence_mbarrier_init();
void mbarrier_arrive(void* barrier, int count, call_site site);
void mbarrier_expect_bytes(void* barrier, int bytes, call_site site);
void mbarrier_arrive_expect_bytes(void* barrier, int bytes, call_site site);
void mbarrier_arrive_remote(void* barrier, int block_rank, int count, call_site site);
void mbarrier_arrive_cluster(void* barrier, int block_rank, int count, call_site site);
bool mbarrier_test(void* barrier, uint32_t parity, call_site site);
void mbarrier_wait(void* barrier, uint32_t parity, call_site site);
void mbarrier_wait_cluster(void* barrier, uint32_t parity, call_site site);

// ---- clusters
void cluster_arrive(call_site site);
void cluster_wait(call_site site);
// Whether the calling lane is its warp's elected one.
bool elect_one(call_site site);

// ---- bulk copies
void fence_async_proxy();

struct coordinates {
  int count = 0;
  int at[tensor_map::kMaxRank] = {};  // innermost first
};

void fence_tensor_map(const tensor_map* map);
void tma_load(void* dst, const tensor_map* map, void* full, const coordinates& c, call_site site);
void tma_load_multicast(void* dst, const tensor_map* map, void* full, uint16_t blocks,
                        const coordinates& c, call_site site);
void tma_store(const tensor_map* map, const void* src, const coordinates& c, call_site site);
void tma_store_add(const tensor_map* map, const void* src, const coordinates& c, call_site site);
void tma_prefetch(const tensor_map* map, const coordinates& c, call_site site);
void tma_prefetch_map(const tensor_map* map, call_site site);
void bulk_load(void* dst, const void* src, int bytes, void* full, call_site site);
void bulk_store(void* dst, const void* src, int bytes, call_site site);
void bulk_commit();
void bulk_wait(int groups_under_way);
void bulk_wait_read(int groups_under_way);

}  // namespace kittens::sim
