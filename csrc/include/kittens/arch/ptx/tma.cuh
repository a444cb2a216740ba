// arch/tma.cuh on the device. PTX ISA, Data Movement and Conversion Instructions: Bulk copy
// (cp.async.bulk), Tensor copy (cp.async.bulk.tensor, cp.reduce.async.bulk.tensor,
// cp.async.bulk.prefetch.tensor), Bulk and Tensor copy completion instructions
// (cp.async.bulk.commit_group, cp.async.bulk.wait_group), prefetch.
#pragma once

#include <cuda.h>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/ptx/eviction.cuh"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/tma.cuh"

namespace kittens::arch {

using tensor_map = CUtensorMap;

// The instruction of a rank. INSTRUCTION(dim, list) is one asm statement whose first five operands
// are KITTENS_COORDINATES, of which `list` names as many as there are.
#define KITTENS_OF_RANK(rank, INSTRUCTION)      \
  if constexpr ((rank) == 1) {                  \
    INSTRUCTION(".1d", "{%0}");                 \
  } else if constexpr ((rank) == 2) {           \
    INSTRUCTION(".2d", "{%0, %1}");             \
  } else if constexpr ((rank) == 3) {           \
    INSTRUCTION(".3d", "{%0, %1, %2}");         \
  } else if constexpr ((rank) == 4) {           \
    INSTRUCTION(".4d", "{%0, %1, %2, %3}");     \
  } else {                                      \
    INSTRUCTION(".5d", "{%0, %1, %2, %3, %4}"); \
  }
#define KITTENS_COORDINATES "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_load(void* dst, const tensor_map* map, mbarrier* full, C... c) {
  const int at[5] = {static_cast<int>(c)...};
#define KITTENS_LOAD(dim, list)                                                             \
  asm volatile("cp.async.bulk.tensor" dim                                                   \
               ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%5], [%6, " list \
               "], [%7];" ::KITTENS_COORDINATES,                                            \
               "r"(shared_address(dst)), "l"(map), "r"(shared_address(full))                \
               : "memory")
  KITTENS_OF_RANK(sizeof...(C), KITTENS_LOAD)
#undef KITTENS_LOAD
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_load_evict_first(void* dst, const tensor_map* map, mbarrier* full, C... c) {
  const int at[5] = {static_cast<int>(c)...};
#define KITTENS_LOAD(dim, list)                                                           \
  asm volatile("cp.async.bulk.tensor" dim                                                 \
               ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint" \
               " [%5], [%6, " list "], [%7], %8;" ::KITTENS_COORDINATES,                  \
               "r"(shared_address(dst)), "l"(map), "r"(shared_address(full)),             \
               "l"(detail::evict_first_policy())                                          \
               : "memory")
  KITTENS_OF_RANK(sizeof...(C), KITTENS_LOAD)
#undef KITTENS_LOAD
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_load_multicast(void* dst, const tensor_map* map, mbarrier* full,
                                       uint16_t blocks, C... c) {
  const int at[5] = {static_cast<int>(c)...};
#define KITTENS_LOAD(dim, list)                                                             \
  asm volatile("cp.async.bulk.tensor" dim                                                   \
               ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"                  \
               ".multicast::cluster [%5], [%6, " list "], [%7], %8;" ::KITTENS_COORDINATES, \
               "r"(shared_address(dst)), "l"(map), "r"(shared_address(full)), "h"(blocks)   \
               : "memory")
  KITTENS_OF_RANK(sizeof...(C), KITTENS_LOAD)
#undef KITTENS_LOAD
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_store(const tensor_map* map, const void* src, C... c) {
  const int at[5] = {static_cast<int>(c)...};
#define KITTENS_STORE(dim, list)                                                           \
  asm volatile("cp.async.bulk.tensor" dim ".global.shared::cta.tile.bulk_group [%6, " list \
               "], [%5];" ::KITTENS_COORDINATES,                                           \
               "r"(shared_address(src)), "l"(map)                                          \
               : "memory")
  KITTENS_OF_RANK(sizeof...(C), KITTENS_STORE)
#undef KITTENS_STORE
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_store_add(const tensor_map* map, const void* src, C... c) {
  const int at[5] = {static_cast<int>(c)...};
#define KITTENS_STORE(dim, list)                                    \
  asm volatile("cp.reduce.async.bulk.tensor" dim                    \
               ".global.shared::cta.add.tile.bulk_group [%6, " list \
               "], [%5];" ::KITTENS_COORDINATES,                    \
               "r"(shared_address(src)), "l"(map)                   \
               : "memory")
  KITTENS_OF_RANK(sizeof...(C), KITTENS_STORE)
#undef KITTENS_STORE
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_prefetch(const tensor_map* map, C... c) {
  const int at[5] = {static_cast<int>(c)...};
#define KITTENS_PREFETCH(dim, list)                                             \
  asm volatile("cp.async.bulk.prefetch.tensor" dim ".L2.global.tile [%5, " list \
               "];" ::KITTENS_COORDINATES,                                      \
               "l"(map)                                                         \
               : "memory")
  KITTENS_OF_RANK(sizeof...(C), KITTENS_PREFETCH)
#undef KITTENS_PREFETCH
}

#undef KITTENS_OF_RANK
#undef KITTENS_COORDINATES

// PTX ISA, membar / fence: the generic address is of .global, in which kernels' parameters lie,
// too.
KITTENS_DEVICE void fence_tensor_map(const tensor_map* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

// Not volatile, and without "memory": to the compiler it is a function of the pointer, so of one
// map it keeps one, outside of loops. Copies by the result stay behind the fence, because they
// depend on it, and that is all that has to be in order. PTX ISA, Memory Consistency Model, 8.9.4
// (Memory synchronization): what the host has done before the launch is before all that the kernel
// does, "except for the tensormap-proxy which is not acquired from generic-proxy at CUDA Kernel
// start", so one fence there must be. 8.9.5 (Causality order): what a thread does behind it, in
// program order, is behind it in base causality order, too, however much later; a second one would
// only tell of later writes.
KITTENS_DEVICE const tensor_map* fenced_tensor_map(const tensor_map* map) {
  const tensor_map* fenced;
  asm("{\n"
      "  .reg .pred there;\n"
      "  setp.ne.u64 there, %1, 0;\n"
      "  @there fence.proxy.tensormap::generic.acquire.sys [%1], 128;\n"
      "  mov.b64 %0, %1;\n"
      "}"
      : "=l"(fenced)
      : "l"(map));
  return fenced;
}

KITTENS_DEVICE void tma_prefetch_map(const tensor_map* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

KITTENS_DEVICE void bulk_load(void* dst, const void* src, int bytes, mbarrier* full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(dst)),
      "l"(__cvta_generic_to_global(src)), "r"(bytes), "r"(shared_address(full))
      : "memory");
}

KITTENS_DEVICE void bulk_store(void* dst, const void* src, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(dst)),
               "r"(shared_address(src)), "r"(bytes)
               : "memory");
}

KITTENS_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int N>
KITTENS_DEVICE void bulk_wait() {
  static_assert(N >= 0, "bulk_wait takes the number of groups that may still be under way");
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

template <int N>
KITTENS_DEVICE void bulk_wait_read() {
  static_assert(N >= 0, "bulk_wait_read takes the number of groups that may still be read");
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

}  // namespace kittens::arch
