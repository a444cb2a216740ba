// arch/mma.cuh on the device. PTX ISA, Warp Level Matrix Instructions: mma.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mma.cuh"

namespace kittens::arch {

#define KITTENS_MMA(type)                                                                     \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                         \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"     \
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), \
                 "f"(c[1]), "f"(c[2]), "f"(c[3]))

template <matrix_element T>
KITTENS_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                 const float (&c)[4]) {
  if constexpr (std::same_as<T, __half>) {
    KITTENS_MMA("f16");
  } else {
    KITTENS_MMA("bf16");
  }
}

#undef KITTENS_MMA

}  // namespace kittens::arch
