// based_attention, chunkwise, for every architecture since sm_80: the function of
// based_attention.cuh in all its passes, by mma.sync, ldmatrix and cp.async.
//
// What is computed, and how it is rounded, is the same code. A block is four warps, of which each
// has 16 rows of a chunk's 64 tokens, and 16 columns of v with their state. What differs:
//
//   chunks     each thread copies pieces of its warp's rows of the next chunk while this one is
//              computed, and stores such pieces of the results
//   features   of keys each warp makes for itself, as the right side of its product with the state:
//              a multiplication for each word of them, where they would take 20 KiB of shared
//              memory, and its bandwidth for as long as the tensor cores take
//   scores     come 16 columns at a time, and only those that count
//   o          goes out through the chunk's values, once all have read them
//
// Shared memory is 47 KiB forward, so that two blocks share the 100 KiB that some architectures
// have, and 73 KiB of gradients: two of 164 KiB. What bounds a chunk beside the tensor cores is
// that each warp reads the state, 20 KiB: 640 wavefronts of shared memory, where a warp's products
// with it, forward, are 160 of m16n8k16.
//
// Synchronisation, a chunk: all meet once they have read the state, and again once they have
// written the next one, and their copies are there.
#pragma once

#include "kernels/based_attention/based_attention_pass.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_multiprocessor)
    based_attention_generic(
        const __grid_constant__ based_attention_generic_arguments<typename Config::type> p) {
  auto& s = *reinterpret_cast<based_attention_generic_shared<Config>*>(arch::dynamic_shared());
  pass_walk<Config>(p, s).consume();
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
