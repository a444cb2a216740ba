// Programmatic dependent launch: kernels one after the other without the gap between them. The
// first line of a kernel that is launched by host::launch_programmatic:
//
//   begin_dependent_grid();    all threads call
//
// Its blocks are placed while the kernel in front of it still runs, wait here until that has ended
// (griddepcontrol.wait), and let the next one be placed (.launch_dependents). In a CUDA graph of
// small kernels that saves the launch of each.
//
// What it waits for: the kernel in front, to its end. What ran before that one has ended too if the
// kernel in front was launched in the ordinary way, or waited itself before it ended, as all of
// ours and CUTLASS's do. A kernel that is launched with programmatic stream serialization and never
// waits (griddepcontrol.wait, cudaGridDependencySynchronize) may end before what it ran beside, and
// then what is launched so behind it, ours or others', may run beside that too. A launch cannot see
// what is in front of it. In a program with such kernels KITTENS_PDL=0 in the environment makes
// ours ordinary launches, which start when all that is in front has ended.
//
// What is in launch_config::constant may be read before: nothing that this may overlap writes it.
//
// Of a grid of more than kMaxProgrammaticBlocks blocks it is neither worth while nor free: each
// block waits, though there is nothing to wait for, and those of a few microseconds feel it (8192 ×
// 768, a block a row: 10.7 µs, not 8.7). There it does nothing, and the launch is an ordinary one.
// benchmarks/programmatic_launch.md.
#pragma once

#include <cstdint>

#include "kittens/arch/grid.cuh"
#include "kittens/arch/thread.cuh"

namespace kittens {

KITTENS_DEVICE void begin_dependent_grid() {
  // As launch_programmatic finds, too; a grid of 2³² blocks and more may wait for nothing.
  const uint32_t blocks = uint32_t(arch::grid_x()) * arch::grid_y() * arch::grid_z();
  if (blocks > arch::kMaxProgrammaticBlocks) return;
  arch::wait_prerequisites();
  arch::launch_dependents();
}

}  // namespace kittens
