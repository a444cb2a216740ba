// setmaxnreg: moves registers from the warps that need few to those that need many. All lanes of a
// warp call, from the same place, and all four warps of a warpgroup ask for the same number.
//
//   raise_registers<N>()   this warp's threads may use N registers each; waits until the block has
//                          as many to spare
//   lower_registers<N>()   … N, fewer than before; gives the rest back to the block
//
// N: 24, 32 … 256. The block owns what its threads had at the launch, which __launch_bounds__
// determines: of 384 threads each has 168, so that one warpgroup may go down to 24 and two up to
// 240. sm_90a only.
#pragma once

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

template <int N>
inline constexpr bool is_register_count = N >= 24 && N <= 256 && N % 8 == 0;

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/registers.hpp"
#else
#include "kittens/arch/ptx/registers.cuh"
#endif
