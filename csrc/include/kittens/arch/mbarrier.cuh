// mbarriers: barriers in shared memory that count arrivals of threads and bytes of bulk copies.
//
//   mbarrier                                   8 bytes of shared memory, aligned to 8
//   mbarrier_init(b, arrivals)                 by one thread; a phase then needs `arrivals` of them
//   fence_mbarrier_init()                      by that thread, before others and copies use its
//                                              barriers; a block or cluster barrier must follow
//   mbarrier_invalidate(b)                     before its memory is used for something else
//   mbarrier_arrive(b, count = 1)              counts as `count` arrivals, and does not wait
//   mbarrier_expect_bytes(b, bytes)            the phase needs `bytes` more; no arrival
//   mbarrier_arrive_expect_bytes(b, bytes)     both in one: expects, then arrives once
//   mbarrier_arrive_remote(b, rank, count = 1) arrives at the barrier of the cluster's block `rank`
//                                              that stands where b does in this block
//   bool mbarrier_test(b, parity)              whether the phase of that parity is over
//   mbarrier_wait(b, parity)                   until it is
//   kHasMbarriers                              whether what is compiled for has them: Hopper does
//
// A barrier is in phase 0, then 1, …: a phase is over when all its arrivals and bytes have come,
// and the next begins at once. A waiter names the phase by its parity (0, 1, 0, …), so it must not
// fall two phases behind. Before phase 0, parity 1 counts as over: a producer that begins with
// parity 1 finds all of its slots empty.
//
// What a thread wrote before it arrived, and what a bulk copy wrote, is visible to who saw the
// phase end. A remote arrival shows no writes: it says that this block has read what it was given.
// No arrival keeps a bulk copy from overtaking the arriver's own loads: for that, each thread that
// loads fences before it arrives (fence_async_proxy).
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/shared.cuh"

namespace kittens::arch {

struct alignas(8) mbarrier {
  uint64_t state;  // the hardware's own
};

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/mbarrier.hpp"
#else
#include "kittens/arch/ptx/mbarrier.cuh"
#endif
