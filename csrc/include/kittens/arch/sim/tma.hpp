// arch/tma.cuh in the simulator.
//
// The call site is the last parameter, where a pack of coordinates cannot come before it: so the
// first pointer carries it.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/tma.cuh"
#include "sim/bulk_api.hpp"

namespace kittens::arch {

using tensor_map = sim::tensor_map;

namespace detail {

// A pointer, and the line that passes it.
template <class P>
struct located {
  P* pointer;
  sim::call_site site;

  template <std::convertible_to<P*> Q>
  located(Q p, KITTENS_CALL_SITE) : pointer(p), site(site) {}
};

template <class... C>
KITTENS_DEVICE sim::coordinates to_coordinates(C... c) {
  return {sizeof...(C), {static_cast<int>(c)...}};
}

}  // namespace detail

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_load(detail::located<void> dst, const tensor_map* map, mbarrier* full,
                             C... c) {
  sim::tma_load(dst.pointer, map, full, detail::to_coordinates(c...), dst.site);
  sim::stay_on_stack();
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_load_evict_first(detail::located<void> dst, const tensor_map* map,
                                         mbarrier* full, C... c) {
  tma_load(dst, map, full, c...);
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_load_multicast(detail::located<void> dst, const tensor_map* map,
                                       mbarrier* full, uint16_t blocks, C... c) {
  sim::tma_load_multicast(dst.pointer, map, full, blocks, detail::to_coordinates(c...), dst.site);
  sim::stay_on_stack();
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_store(detail::located<const tensor_map> map, const void* src, C... c) {
  sim::tma_store(map.pointer, src, detail::to_coordinates(c...), map.site);
  sim::stay_on_stack();
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_store_add(detail::located<const tensor_map> map, const void* src, C... c) {
  sim::tma_store_add(map.pointer, src, detail::to_coordinates(c...), map.site);
  sim::stay_on_stack();
}

template <class... C>
  requires tensor_coordinates<C...>
KITTENS_DEVICE void tma_prefetch(detail::located<const tensor_map> map, C... c) {
  sim::tma_prefetch(map.pointer, detail::to_coordinates(c...), map.site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void fence_tensor_map(const tensor_map* map) { sim::fence_tensor_map(map); }
KITTENS_DEVICE const tensor_map* fenced_tensor_map(const tensor_map* map) {
  if (map != nullptr) sim::fence_tensor_map(map);
  return map;
}

KITTENS_DEVICE void tma_prefetch_map(const tensor_map* map, KITTENS_CALL_SITE) {
  sim::tma_prefetch_map(map, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void bulk_load(void* dst, const void* src, int bytes, mbarrier* full,
                              KITTENS_CALL_SITE) {
  sim::bulk_load(dst, src, bytes, full, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void bulk_store(void* dst, const void* src, int bytes, KITTENS_CALL_SITE) {
  sim::bulk_store(dst, src, bytes, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void bulk_commit() { sim::bulk_commit(); }

template <int N>
KITTENS_DEVICE void bulk_wait() {
  static_assert(N >= 0, "bulk_wait takes the number of groups that may still be under way");
  sim::bulk_wait(N);
}

template <int N>
KITTENS_DEVICE void bulk_wait_read() {
  static_assert(N >= 0, "bulk_wait_read takes the number of groups that may still be read");
  sim::bulk_wait_read(N);
}

}  // namespace kittens::arch
