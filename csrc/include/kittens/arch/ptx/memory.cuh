// arch/memory.cuh on the device.
//
// Plain accesses are left to the compiler, which may then order and combine them; a pointer that is
// converted to an address of its state space and back makes it choose ld.shared / ld.global where
// it cannot see the pointer's origin. __builtin_assume(__isShared(p)) would say the same, but nvcc
// 13.0 takes it to be false now and then, and leaves out the code behind it without a word, as it
// did half of based_attention_step (cf. github.com/NVIDIA/cccl, issues 10901 and 11028;
// tests/ptxas/test_accesses.py). Stores of 16 bytes to global memory are not plain: of
// several such, nvcc 13.0 makes four st.global.u32 out of the first.
#pragma once

#include <cstdint>
#include <cstring>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/memory.cuh"
#include "kittens/arch/ptx/eviction.cuh"

namespace kittens::arch {
namespace detail {

// One register tuple per access size. The 1-byte form travels in a 16-bit register.
template <int Bytes>
struct access;

// PTX ISA, Data Movement and Conversion Instructions: ld, ld.global.nc; st. L1::no_allocate: the
// line is not kept in the L1.
#define KITTENS_STREAMING_LOAD "ld.global.nc.L1::no_allocate"
#define KITTENS_EVICT_LAST_LOAD(form, flag, ...)                                                   \
  KITTENS_DEVICE void load_evict_last(const void* p, bool predicate) {                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, " flag ", 0;\n@p ld.global.L2::cache_hint" form \
                 "\n}"                                                                             \
                 : __VA_ARGS__                                                                     \
                 : "l"(p), "l"(evict_last_policy()), "r"(uint32_t{predicate})                      \
                 : "memory");                                                                      \
  }
#define KITTENS_STREAMING_STORE(form, ...)                                           \
  KITTENS_DEVICE void store_streaming(void* p) const {                               \
    asm volatile("st.global.L1::no_allocate" form ::"l"(p), __VA_ARGS__ : "memory"); \
  }

template <>
struct access<1> {
  uint16_t x;
  KITTENS_DEVICE void load_streaming(const void* p) {
    asm volatile(KITTENS_STREAMING_LOAD ".u8 %0, [%1];" : "=h"(x) : "l"(p));
  }
  KITTENS_EVICT_LAST_LOAD(".u8 %0, [%1], %2;", "%3", "+h"(x))
  KITTENS_STREAMING_STORE(".u8 [%0], %1;", "h"(x))
};

template <>
struct access<2> {
  uint16_t x;
  KITTENS_DEVICE void load_streaming(const void* p) {
    asm volatile(KITTENS_STREAMING_LOAD ".u16 %0, [%1];" : "=h"(x) : "l"(p));
  }
  KITTENS_EVICT_LAST_LOAD(".u16 %0, [%1], %2;", "%3", "+h"(x))
  KITTENS_STREAMING_STORE(".u16 [%0], %1;", "h"(x))
};

template <>
struct access<4> {
  uint32_t x;
  KITTENS_DEVICE void load_streaming(const void* p) {
    asm volatile(KITTENS_STREAMING_LOAD ".u32 %0, [%1];" : "=r"(x) : "l"(p));
  }
  KITTENS_EVICT_LAST_LOAD(".u32 %0, [%1], %2;", "%3", "+r"(x))
  KITTENS_STREAMING_STORE(".u32 [%0], %1;", "r"(x))
};

template <>
struct access<8> {
  uint32_t x, y;
  KITTENS_DEVICE void load_streaming(const void* p) {
    asm volatile(KITTENS_STREAMING_LOAD ".v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(p));
  }
  KITTENS_EVICT_LAST_LOAD(".v2.u32 {%0, %1}, [%2], %3;", "%4", "+r"(x), "+r"(y))
  KITTENS_STREAMING_STORE(".v2.u32 [%0], {%1, %2};", "r"(x), "r"(y))
};

template <>
struct access<16> {
  uint32_t x, y, z, w;
  KITTENS_DEVICE void load_streaming(const void* p) {
    asm volatile(KITTENS_STREAMING_LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                 : "l"(p));
  }
  KITTENS_EVICT_LAST_LOAD(".v4.u32 {%0, %1, %2, %3}, [%4], %5;", "%6", "+r"(x), "+r"(y), "+r"(z),
                          "+r"(w))
  KITTENS_STREAMING_STORE(".v4.u32 [%0], {%1, %2, %3, %4};", "r"(x), "r"(y), "r"(z), "r"(w))
};

KITTENS_DEVICE void store_16_bytes(void* p, const access<16>& a, bool predicate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n"
      "@p st.global.v4.u32 [%4], {%0, %1, %2, %3};\n}" ::"r"(a.x),
      "r"(a.y), "r"(a.z), "r"(a.w), "l"(p), "r"(uint32_t{predicate})
      : "memory");
}

template <class V>
KITTENS_DEVICE V as_vector(const access<sizeof(V)>& a) {
  V v;
  memcpy(static_cast<void*>(&v), &a, sizeof(V));
  return v;
}

#undef KITTENS_STREAMING_LOAD
#undef KITTENS_EVICT_LAST_LOAD
#undef KITTENS_STREAMING_STORE

template <class V>
KITTENS_DEVICE V* in_global(V* p) {
  return static_cast<V*>(__cvta_global_to_generic(__cvta_generic_to_global(p)));
}

template <class V>
KITTENS_DEVICE V* in_shared(V* p) {
  return static_cast<V*>(__cvta_shared_to_generic(__cvta_generic_to_shared(p)));
}

}  // namespace detail

template <memory_vector V>
KITTENS_DEVICE V load_global(const V* p) {
  return *detail::in_global(p);
}

template <memory_vector V>
KITTENS_DEVICE void store_global(V* p, std::type_identity_t<V> v, bool predicate = true) {
  if constexpr (sizeof(V) == 16) {
    detail::access<sizeof(V)> a{};
    memcpy(&a, &v, sizeof(V));
    detail::store_16_bytes(p, a, predicate);
  } else {
    if (predicate) *detail::in_global(p) = v;
  }
}

template <memory_vector V>
KITTENS_DEVICE V load_global_streaming(const V* p) {
  detail::access<sizeof(V)> a;
  a.load_streaming(p);
  return detail::as_vector<V>(a);
}

template <memory_vector V>
KITTENS_DEVICE V load_global_evict_last(const V* p, bool predicate = true) {
  detail::access<sizeof(V)> a{};
  a.load_evict_last(p, predicate);
  return detail::as_vector<V>(a);
}

template <memory_vector V>
KITTENS_DEVICE void store_global_streaming(V* p, std::type_identity_t<V> v) {
  detail::access<sizeof(V)> a{};
  memcpy(&a, &v, sizeof(V));
  a.store_streaming(p);
}

template <memory_vector V>
KITTENS_DEVICE V load_shared(const V* p) {
  return *detail::in_shared(p);
}

template <memory_vector V>
KITTENS_DEVICE void store_shared(V* p, std::type_identity_t<V> v) {
  *detail::in_shared(p) = v;
}

// PTX ISA, Data Movement and Conversion Instructions: prefetch, prefetchu.
KITTENS_DEVICE void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}

}  // namespace kittens::arch
