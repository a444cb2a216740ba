// Bulk copies between global and shared memory by the hardware's copy engine (TMA): one thread asks
// for a whole box of a tensor, and goes on.
//
//   tensor_map                        what host/tensor_map.cuh encodes: address, extents, strides
//   of
//                                     a tensor of 1 to 5 dimensions, a box and its swizzle. 128
//                                     bytes; a kernel takes it as a `const __grid_constant__`
//                                     parameter, or inside of one, or a pointer to global memory
//   fence_tensor_map(map)             of one in global memory: a block fences before it uses it
//   fenced_tensor_map(map)            map, fenced for this thread; of one that nobody writes while
//                                     the kernel runs. Of several calls with one map the compiler
//                                     may keep one, and may move it in front of loops, also where
//                                     the call is not reached: a null pointer is not fenced
//   tma_load(dst, map, full, c0, …)   the box at (c0, …), innermost first, in elements, to shared
//                                     memory
//   tma_load_evict_first(dst, map, full, c0, …)
//                                     the same with L2::evict_first: the L2 evicts its lines before
//                                     others
//   tma_load_multicast(dst, map, full, blocks, c0, …)
//                                     the same to the same place in each block of the cluster whose
//                                     bit is set, counted on its barrier
//   tma_store(map, src, c0, …)        the other way
//   tma_store_add(map, src, c0, …)    adds to what is there, element by element
//   tma_prefetch(map, c0, …)          the box to the L2
//   tma_prefetch_map(map)             the map itself, so that its first use is faster
//   bulk_load(dst, src, bytes, full)  plain bytes; a multiple of 16, both sides aligned to 16
//   bulk_store(dst, src, bytes)       the other way
//   bulk_commit()                     closes this thread's group of stores
//   bulk_wait<N>()                    until at most N of this thread's latest groups are under way
//   bulk_wait_read<N>()               … have yet to read their source, which may then be written
//                                     again
//
// Loads count their bytes on the mbarrier `full`: always those of the whole box. What lies outside
// of the tensor is loaded as zeros, and not stored; but a store writes whole 16-byte pieces, so a
// row of the tensor that ends within one is padded. c0 is a multiple of 16 bytes; a store takes no
// negative coordinate.
//
// In shared memory a box stands row after row; with a swizzle, each row in swizzle_bytes of its
// own, of whose 16-byte pieces p stands at p ^ (bits 7 … of its address). dst and src are aligned
// to 128 bytes, or to 8 times the swizzle if that is more.
//
// What a thread wrote to shared memory is seen by a store after fence_async_proxy().
#pragma once

#include <concepts>
#include <cstdint>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mbarrier.cuh"
#include "kittens/arch/shared.cuh"

namespace kittens::arch {

// The coordinates of a box: one for each dimension of the tensor.
template <class... C>
concept tensor_coordinates =
    (sizeof...(C) >= 1 && sizeof...(C) <= 5 && (std::convertible_to<C, int> && ...));

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/tma.hpp"
#else
#include "kittens/arch/ptx/tma.cuh"
#endif
