// arch/math.cuh on the device.
// No `volatile`: these are pure, and the compiler may move and combine them.
#pragma once

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

// PTX ISA, Floating Point Instructions: ex2.
KITTENS_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA, Floating Point Instructions: lg2.
KITTENS_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA, Floating Point Instructions: rsqrt.
KITTENS_DEVICE float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA, Floating Point Instructions: rcp.
KITTENS_DEVICE float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// PTX ISA, Floating Point Instructions: tanh.
KITTENS_DEVICE float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

KITTENS_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KITTENS_DEVICE float mul_rounded(float a, float b) { return __fmul_rn(a, b); }
KITTENS_DEVICE int round_to_int(float x) { return __float2int_rn(x); }
KITTENS_DEVICE int popc(unsigned x) { return __popc(x); }
KITTENS_DEVICE unsigned select_bits(unsigned a, unsigned b, unsigned mask) {
  constexpr int kTable = (0xf0 & 0xaa) | (0xcc & ~0xaa);  // PTX ISA, lop3: of a, b and mask
  unsigned result;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(mask), "n"(kTable));
  return result;
}
KITTENS_DEVICE unsigned byte_permute(unsigned a, unsigned b, unsigned selector) {
  return __byte_perm(a, b, selector);
}

}  // namespace kittens::arch
