// arch/atomic.cuh on the device: atom, through CUDA's intrinsics, and ld and st.
#pragma once

#include <cstdint>

#include "kittens/arch/atomic.cuh"
#include "kittens/arch/keywords.cuh"

namespace kittens::arch {
namespace detail {

// CUDA's atomics name the 8-byte word `unsigned long long`, which uint64_t is not on Linux.
KITTENS_DEVICE int* atomic_pointer(int* p) { return p; }
KITTENS_DEVICE unsigned* atomic_pointer(unsigned* p) { return p; }
KITTENS_DEVICE unsigned long long* atomic_pointer(uint64_t* p) {
  return reinterpret_cast<unsigned long long*>(p);
}

}  // namespace detail

KITTENS_DEVICE float atomic_add(float* p, float v) { return atomicAdd(p, v); }

template <atomic_word T>
KITTENS_DEVICE T atomic_add(T* p, std::type_identity_t<T> v) {
  return atomicAdd(detail::atomic_pointer(p), v);
}

template <atomic_word T>
  requires(sizeof(T) == 4)
KITTENS_DEVICE T atomic_max(T* p, std::type_identity_t<T> v) {
  return atomicMax(p, v);
}

template <atomic_word T>
  requires(sizeof(T) == 4)
KITTENS_DEVICE T atomic_min(T* p, std::type_identity_t<T> v) {
  return atomicMin(p, v);
}

template <atomic_word T>
KITTENS_DEVICE T atomic_exchange(T* p, std::type_identity_t<T> v) {
  return atomicExch(detail::atomic_pointer(p), v);
}

template <atomic_word T>
KITTENS_DEVICE T atomic_cas(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return atomicCAS(detail::atomic_pointer(p), expected, v);
}

// PTX ISA, Data Movement and Conversion Instructions: ld (.acquire). Generic addresses, so that
// shared memory works too.
template <atomic_word T>
KITTENS_DEVICE T load_acquire(const T* p) {
  T v;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.acquire.gpu.b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  } else {
    asm volatile("ld.acquire.gpu.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  }
  return v;
}

// PTX ISA, Data Movement and Conversion Instructions: st (.release).
template <atomic_word T>
KITTENS_DEVICE void store_release(T* p, std::type_identity_t<T> v) {
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.release.gpu.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
  } else {
    asm volatile("st.release.gpu.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
}

KITTENS_DEVICE void fence_block() { __threadfence_block(); }
KITTENS_DEVICE void fence_device() { __threadfence(); }

}  // namespace kittens::arch
