// Who am I: the place of the running thread in its block and grid. Blocks are one-dimensional.
//
//   int thread_id()       0 … block_threads() − 1
//   int lane_id()         thread_id() % 32
//   int warp_id()         thread_id() / 32
//   int block_threads()   threads of a block
//   int block_x() block_y() block_z()   place of the block in the grid
//   int grid_x()  grid_y()  grid_z()    blocks of the grid
//   bool elect_one()      true for one lane of the warp, always the same; all lanes call together.
//                         Which one is not said: it need not be lane 0.
#pragma once

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/thread.hpp"
#else
#include "kittens/arch/ptx/thread.cuh"
#endif
