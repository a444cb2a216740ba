// Atomic operations on global and shared memory, at the scope of the device, and fences.
//
//   T atomic_add(T* p, T v)            float, int, unsigned, uint64_t; returns what was there.
//                                      A float in global memory takes and becomes zero for
//                                      subnormal numbers.
//   T atomic_max(T* p, T v)            int, unsigned
//   T atomic_min(T* p, T v)            int, unsigned
//   T atomic_exchange(T* p, T v)       int, unsigned, uint64_t
//   T atomic_cas(T* p, T expected, T v)   int, unsigned, uint64_t; returns what was there
//   T load_acquire(const T* p)         int, unsigned, uint64_t: later accesses stay behind it
//   store_release(T* p, T v)           int, unsigned, uint64_t: earlier accesses stay before it
//   fence_block()                      orders this thread's accesses as its block sees them
//   fence_device()                     … as the device sees them
//
// All but load_acquire and store_release are relaxed: pair them with fences.
#pragma once

#include <concepts>
#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

template <class T>
concept atomic_word =
    std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, uint64_t>;

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/atomic.hpp"
#else
#include "kittens/arch/ptx/atomic.cuh"
#endif
