// arch/memory.cuh in the simulator: plain accesses, checked.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/memory.cuh"
#include "sim/api.hpp"

namespace kittens::arch {

template <memory_vector V>
KITTENS_DEVICE V load_global(const V* p, KITTENS_CALL_SITE) {
  sim::check_global("load_global", p, sizeof(V), false, site);
  return *p;
}

template <memory_vector V>
KITTENS_DEVICE V load_global_streaming(const V* p, KITTENS_CALL_SITE) {
  sim::check_global("load_global_streaming", p, sizeof(V), false, site);
  return *p;
}

template <memory_vector V>
KITTENS_DEVICE V load_global_evict_last(const V* p, bool predicate = true, KITTENS_CALL_SITE) {
  if (!predicate) return V{};
  sim::check_global("load_global_evict_last", p, sizeof(V), false, site);
  return *p;
}

template <memory_vector V>
KITTENS_DEVICE void store_global(V* p, std::type_identity_t<V> v, bool predicate = true,
                                 KITTENS_CALL_SITE) {
  if (!predicate) return;
  sim::check_global("store_global", p, sizeof(V), true, site);
  *p = v;
}

template <memory_vector V>
KITTENS_DEVICE void store_global_streaming(V* p, std::type_identity_t<V> v, KITTENS_CALL_SITE) {
  sim::check_global("store_global_streaming", p, sizeof(V), true, site);
  *p = v;
}

template <memory_vector V>
KITTENS_DEVICE V load_shared(const V* p, KITTENS_CALL_SITE) {
  sim::check_shared("load_shared", p, sizeof(V), site);
  return *p;
}

template <memory_vector V>
KITTENS_DEVICE void store_shared(V* p, std::type_identity_t<V> v, KITTENS_CALL_SITE) {
  sim::check_shared("store_shared", p, sizeof(V), site);
  *p = v;
}

// A hint: it changes nothing that a program can see, and may name any address.
KITTENS_DEVICE void prefetch_l2(const void*) {}

}  // namespace kittens::arch
