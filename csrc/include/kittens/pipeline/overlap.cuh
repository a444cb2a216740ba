// Kernels one after the other without the gap between them. The first line of a kernel that is
// launched by host::launch_overlapped:
//
//   begin_overlapped();    all threads call
//
// Its blocks take their places while the kernel in front of it still runs, wait here until that
// has ended, and let the next one do the same. In a CUDA graph of small kernels that saves the
// launch of each: benchmarks/overlap.md.
#pragma once

#include "kittens/arch/grid.cuh"

namespace kittens {

KITTENS_DEVICE void begin_overlapped() {
  arch::wait_prerequisites();
  arch::launch_dependents();
}

}  // namespace kittens
