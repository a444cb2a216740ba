// arch/pair_math.cuh on the device.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

// PTX ISA, Half Precision Floating Point Instructions: fma.
KITTENS_DEVICE uint32_t fma_bf16_pairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

}  // namespace kittens::arch
