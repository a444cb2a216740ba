// cp.async: copies from global to shared memory that run beside the thread which asks for them.
//
//   cp_async<Bytes>(dst, src, predicate = true)   Bytes = 4, 8 or 16, both sides aligned to it; a
//                                                 false predicate writes zeros and reads nothing
//   cp_async_evict_first<Uniform = true>(dst, src, predicate = true)
//                                                 16 bytes; L2::evict_first: the L2 evicts their
//                                                 lines before others. Not Uniform: dst is known to
//                                                 be no uniform address plus a lane's offset, which
//                                                 saves an instruction (ptx/async_copy.cuh)
//   cp_async_commit()                             closes this thread's group of copies
//   cp_async_wait<N>()                            waits until at most N of this thread's latest
//                                                 groups are under way
//
// A wait makes a thread's own copies visible to itself; the others see them after a barrier.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/shared.cuh"

#if KITTENS_SIMULATED
#include "kittens/arch/sim/async_copy.hpp"
#else
#include "kittens/arch/ptx/async_copy.cuh"
#endif
