// Launching a kernel: the one way, in both worlds.
//
//   launch(kernel, {.grid = {rows}, .block = {128}, .shared_bytes = bytes}, stream, params);
//
//   launch_programmatic(kernel, config, stream, params);
//
// The same by programmatic dependent launch: the kernel's threads call begin_dependent_grid()
// first.
//
// Throws kittens::host::error, naming the kernel, when the launch is refused. Never synchronises on
// the device; in the simulator the kernel has run when launch returns.
//
//   int multiprocessors()   of the current device, for persistent kernels
//
// With nvcc, this header needs no library but CUDA's runtime.
#pragma once

#include "kittens/arch/grid.cuh"
#include "kittens/arch/keywords.cuh"
#include "kittens/host/launch_config.h"

#if KITTENS_SIMULATED
#include "kittens/host/sim/launch.hpp"
#else
#include "kittens/host/cuda/launch.cuh"
#endif

namespace kittens::host {

// The launch of a kernel that calls begin_dependent_grid(): a small grid may start while the
// kernels in front of it still run (pipeline/programmatic_launch.cuh).
template <class... P>
void launch_programmatic(void (*kernel)(P...), launch_config config, stream s,
                         const std::type_identity_t<P>&... arguments) {
  config.programmatic = launchable(config) && blocks_of(config) <= arch::kMaxProgrammaticBlocks;
  launch(kernel, config, s, arguments...);
}

}  // namespace kittens::host
