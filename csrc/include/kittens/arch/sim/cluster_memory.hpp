// arch/cluster_memory.cuh in the simulator: plain accesses to the other block's memory, checked.
#pragma once

#include "kittens/arch/cluster_memory.cuh"
#include "kittens/arch/keywords.cuh"
#include "sim/bulk_api.hpp"
#include "sim/cluster_api.hpp"

namespace kittens::arch {

template <class T>
KITTENS_DEVICE T* map_shared(T* p, int block_rank, KITTENS_CALL_SITE) {
  return static_cast<T*>(sim::map_shared("map_shared", p, alignof(T), block_rank, site));
}

template <memory_vector V>
KITTENS_DEVICE V load_cluster(const V* p, int block_rank, KITTENS_CALL_SITE) {
  return *static_cast<const V*>(sim::map_shared("load_cluster", p, sizeof(V), block_rank, site));
}

template <memory_vector V>
KITTENS_DEVICE void store_cluster(V* p, int block_rank, std::type_identity_t<V> v,
                                  KITTENS_CALL_SITE) {
  *static_cast<V*>(sim::map_shared("store_cluster", p, sizeof(V), block_rank, site)) = v;
}

KITTENS_DEVICE void bulk_copy_cluster(void* dst, int block_rank, const void* src, int bytes,
                                      mbarrier* full, KITTENS_CALL_SITE) {
  sim::bulk_copy_cluster(dst, block_rank, src, bytes, full, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void mbarrier_arrive_cluster(mbarrier* b, int block_rank, int count = 1,
                                            KITTENS_CALL_SITE) {
  sim::mbarrier_arrive_cluster(b, block_rank, count, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void mbarrier_wait_cluster(mbarrier* b, uint32_t parity, KITTENS_CALL_SITE) {
  sim::mbarrier_wait_cluster(b, parity, site);
  sim::stay_on_stack();
}

}  // namespace kittens::arch
