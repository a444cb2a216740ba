// arch/grid.cuh on the device. PTX ISA, Parallel Synchronization and Communication Instructions:
// griddepcontrol.
#pragma once

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

KITTENS_DEVICE void wait_prerequisites() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

KITTENS_DEVICE void launch_dependents() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace kittens::arch
