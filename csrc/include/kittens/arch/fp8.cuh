// Conversions from and to floats of 8 bits.
//
//   kConvertsFp8   whether there are instructions for them: since sm_89 (PTX ISA, cvt). What they
//                  compute, CUDA's own functions do elsewhere too, one after the other, and slowly:
//                  types/fp8.cuh has others, which the simulator runs as well.
#pragma once

namespace kittens::arch {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool kConvertsFp8 = true;
#else
inline constexpr bool kConvertsFp8 = false;
#endif

}  // namespace kittens::arch
