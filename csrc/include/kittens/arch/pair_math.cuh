// Arithmetic of both bf16 of a word that cuda_bf16.h has for the device alone.
//
//   uint32_t fma_bf16_pairs(a, b, c)      a·b + c, each rounded once, to nearest even; subnormals
//                                         are kept
#pragma once

#include "kittens/arch/keywords.cuh"

#if KITTENS_SIMULATED
#include "kittens/arch/sim/pair_math.hpp"
#else
#include "kittens/arch/ptx/pair_math.cuh"
#endif
