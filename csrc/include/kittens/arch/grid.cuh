// One grid after the other: programmatic dependent launch. A grid whose launch_config is
// `programmatic` may start before the kernels in front of it in its stream have ended, so that its
// blocks are in place when they do.
//
//   wait_prerequisites()   until those kernels have ended and all that they wrote can be read here.
//                          In a programmatic launch, each thread calls it before it touches global
//                          memory.
//   launch_dependents()    the grid behind this one may start as soon as every block of this one
//                          has called it or ended. It promises nothing: that grid waits itself.
//
// Neither does anything in an ordinary launch. Below sm_90, which has no such launches, both are
// empty.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

// Of a grid for which that is worth while: pipeline/programmatic_launch.cuh.
inline constexpr uint32_t kMaxProgrammaticBlocks = 4096;

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/grid.hpp"
#else
#include "kittens/arch/ptx/grid.cuh"
#endif
