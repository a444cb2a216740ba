// The special-function unit, and the arithmetic that both worlds do not spell alike.
// Approximations, but tanh_approx, take and give zero for subnormal numbers.
//
//   float exp2_approx(x)          2^x, within 2 ulp
//   float log2_approx(x)          log2(x), within 2^-22 absolute for x in [0.5, 2], else 2 ulp
//   float rsqrt_approx(x)         x^-1/2, within 2^-22.4 relative
//   float reciprocal_approx(x)    1/x, within 1 ulp
//   float tanh_approx(x)          tanh(x), within 2^-11 relative
//   float fma(a, b, c)            a·b + c, rounded once
//   float mul_rounded(a, b)       a·b, rounded; the compiler never fuses it into an fma
//   int round_to_int(x)           the nearest int, ties to even; NaN gives 0, and what is
//                                 beyond all ints the nearest of them
//   int popc(unsigned x)          number of bits set
//   unsigned select_bits(a, b, mask)
//                                 a's where mask has ones, else b's: one instruction, also of two
//                                 constants, of which ptxas makes two by itself
//   unsigned byte_permute(a, b, selector)
//                                 byte i is byte n of b:a, of which a's are 0 to 3 and b's 4 to 7:
//                                 n, below 8, stands in bits 4 i to 4 i + 3 of the selector
//
// bf16 and half conversions come from cuda_bf16.h and cuda_fp16.h in both worlds.
#pragma once

#include "kittens/arch/keywords.cuh"

namespace kittens {

// (std::numbers has them, but NVRTC no <numbers>.)
inline constexpr float kLog2e = 1.442695041f;  // exp(x) = exp2(x · kLog2e)
inline constexpr float kLn2 = 0.6931471806f;   // log(x) = log2(x) · kLn2

}  // namespace kittens

#if KITTENS_SIMULATED
#include "kittens/arch/sim/math.hpp"
#else
#include "kittens/arch/ptx/math.cuh"
#endif
