// arch/thread.cuh on the device. Special registers, by CUDA's own names for them.
#pragma once

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

}  // namespace kittens::arch
