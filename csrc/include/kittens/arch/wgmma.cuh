// wgmma: products of matrices by the tensor cores of sm_90a, of a warpgroup (four warps, of which
// the first has a number that is a multiple of 4). All 128 threads call, from the same place.
//
//   wgmma<T, N, A, B>(d, a, b, accumulate)   d (+)= a·b: 64 × N from 64 × 16 and 16 × N
//   wgmma<T, N, B>(d, a, b, accumulate)      the same, with a from registers: const uint32_t[4]
//     T               __nv_bfloat16 or __half; N = 8, 16 … 256
//     float d[N / 2]  warp w of the warpgroup holds rows 16·w …, each 16 × 8 of it as mma_m16n8k16
//                     (arch/mma.cuh) does: d[4·i …] are columns 8·i …. a[4] likewise
//     A, B            major::k: the 16 elements of a row of a (of a column of b) are neighbours in
//                     shared memory; major::mn: the elements of a column of a (of a row of b) are
//     accumulate      false: what d held does not count
//   wgmma_fence()           before the first product of a group: finishes what was done to d and a
//   wgmma_commit()          closes the group of products asked for since the last one
//   wgmma_wait<N>()         waits until at most N of the latest groups are under way; until then
//                           nobody touches their d, their a in registers, or what they read of
//                           shared memory
//   wgmma_hold(registers…)  no instruction: the compiler moves no arithmetic on these arrays, d or
//   a,
//                           across it. It belongs before a fence and after a wait, which the
//                           compiler does not see use registers. (Where it moves arithmetic past
//                           them, ptxas repairs that with more waiting: C7519, C7517.)
//
//   uint64_t matrix_descriptor(uint32_t shared_address, leading_bytes, stride_bytes, swizzle_bytes)
//     An operand in shared memory. It is made of cores of 8 × 8 elements: 8 lines of 16 bytes along
//     which it is major. swizzle_bytes = 32, 64 or 128: lines are so far apart, and a core's
//     neighbours along them, as long as they share those bytes, are 16 bytes apart; 16-byte pieces
//     change places as in kittens::st. 0: the 8 lines of a core are 128 bytes in a row.
//                      stride_bytes                         leading_bytes
//       K-major, 0     from one core to the next along MN   … to the next along K
//       K-major        from one core to the next along MN   not used
//       MN-major, 0    … along MN                           … along K
//       MN-major       … along K                            from swizzle_bytes to the next along MN
//     Distances and the address are multiples of 16. To move on by `bytes`, add bytes / 16 to it;
//     but the start keeps the alignment of 8 lines (8·swizzle_bytes), up to bytes within a line.
//
// (PTX ISA, Asynchronous Warpgroup Level Matrix Instructions; strides, canonical layouts.)
#pragma once

#include <concepts>
#include <cstdint>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mma.cuh"

namespace kittens::arch {

enum class major { k, mn };

template <int N>
inline constexpr bool is_wgmma_width = N >= 8 && N <= 256 && N % 8 == 0;

namespace detail {

// PTX ISA, Matrix Descriptor Format.
KITTENS_INLINE constexpr uint64_t encode_matrix(uint32_t address, int leading_bytes,
                                                int stride_bytes, int swizzle_bytes) {
  const uint64_t swizzle = swizzle_bytes == 128  ? 1
                           : swizzle_bytes == 64 ? 2
                           : swizzle_bytes == 32 ? 3
                                                 : 0;
  return uint64_t{(address & 0x3ffff) >> 4} | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | swizzle << 62;
}

}  // namespace detail
}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/wgmma.hpp"
#else
#include "kittens/arch/ptx/wgmma.cuh"
#endif
