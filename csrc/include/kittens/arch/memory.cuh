// Loads and stores of one vector, one instruction each. V is a plain type of 1, 2, 4, 8 or 16
// bytes, aligned to its size (uint4, float4, uint2, float, __nv_bfloat162 …).
//
//   V load_global(const V* p)
//   V load_global_streaming(const V* p)    for what is read once, and not written during the
//                                          launch: leaves the first-level cache to others
//   V load_global_evict_last(const V* p, bool predicate = true)
//                                          L2::evict_last: the L2 evicts its line last, after what
//                                          is written
//   store_global(V* p, V v, bool predicate = true)
//   store_global_streaming(V* p, V v)      for what nobody reads soon
//   V load_shared(const V* p)
//   store_shared(V* p, V v)
//   prefetch_l2(const void* p)             brings the cache line of global address p to the L2
//
// Without its predicate, nothing is read (the value is zero) or written. Evict-last loads, and
// stores of 16 bytes, are one predicated instruction: no branch, behind which other accesses would
// wait.
//
// The simulator checks the alignment of each access, and the bounds of each shared access.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

// What one load or store instruction moves. (Not is_trivially_copyable: CUDA's own __nv_bfloat162
// is not, on paper.)
template <class V>
concept memory_vector = std::is_trivially_destructible_v<V> && sizeof(V) <= 16 &&
                        (sizeof(V) & (sizeof(V) - 1)) == 0 && alignof(V) == sizeof(V);

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/memory.hpp"
#else
#include "kittens/arch/ptx/memory.cuh"
#endif
