// arch/thread.cuh on the device. Special registers, by CUDA's own names for them.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

KITTENS_DEVICE int thread_id() { return static_cast<int>(threadIdx.x); }
KITTENS_DEVICE int lane_id() { return static_cast<int>(threadIdx.x % 32); }
KITTENS_DEVICE int warp_id() { return static_cast<int>(threadIdx.x / 32); }
KITTENS_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
KITTENS_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
KITTENS_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
KITTENS_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
KITTENS_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }
KITTENS_DEVICE int grid_y() { return static_cast<int>(gridDim.y); }
KITTENS_DEVICE int grid_z() { return static_cast<int>(gridDim.z); }

// PTX ISA, Parallel Synchronization and Communication Instructions: elect.sync. Below sm_90, which
// lacks it, lane 0.
KITTENS_DEVICE bool elect_one() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  uint32_t elected;
  asm volatile(
      "{\n"
      "  .reg .pred elected;\n"
      "  elect.sync _|elected, 0xffffffff;\n"
      "  selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
#else
  return lane_id() == 0;
#endif
}

}  // namespace kittens::arch
