// arch/async_copy.cuh on the device. PTX ISA, Data Movement and Conversion Instructions:
// Non-bulk copy (cp.async, cp.async.commit_group, cp.async.wait_group).
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/ptx/eviction.cuh"
#include "kittens/arch/shared.cuh"

namespace kittens::arch {

// The last operand is how many bytes are read; the rest of the destination becomes zero.
// .cg (past the first-level cache) exists for 16 bytes only.
template <int Bytes>
KITTENS_DEVICE void cp_async(void* dst, const void* src, bool predicate = true) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp_async copies 4, 8 or 16 bytes");
  const uint32_t to = shared_address(dst);
  const size_t from = __cvta_generic_to_global(src);
  const int read = predicate ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes),
                 "r"(read)
                 : "memory");
  }
}

// Of a copy with a policy to a uniform address plus a lane's offset ptxas (12.8, 13.0) makes LDGSTS
// [R + UR], at which an H200 stops: an illegal instruction. A permutation that changes nothing
// keeps it from seeing the sum. (tests/ptxas/test_copy_addresses.py: no kernel has one.)
template <bool Uniform = true>
KITTENS_DEVICE void cp_async_evict_first(void* dst, const void* src, bool predicate = true) {
  uint32_t to = shared_address(dst);
  if constexpr (Uniform) asm("prmt.b32 %0, %0, 0, 0x3210;" : "+r"(to));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(__cvta_generic_to_global(src)), "r"(predicate ? 16 : 0),
               "l"(detail::evict_first_policy())
               : "memory");
}

KITTENS_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
KITTENS_DEVICE void cp_async_wait() {
  static_assert(N >= 0, "cp_async_wait takes the number of groups that may still be under way");
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace kittens::arch
