// based_attention, chunkwise, for every architecture since sm_80: the function of based_attention.cuh
// in all its passes, by mma.sync, ldmatrix and cp.async.
//
// What is computed, and how it is rounded, is the same code. A block is four warps, of which each has
// 16 rows of a chunk's 64 tokens, and 16 columns of v with their state. Three things differ:
//
//   chunks     each thread copies pieces of its warp's rows of the next chunk, while this one is
//              computed; and stores such pieces of the results
//   features   of keys each warp makes for itself, as the right side of its product with the state:
//              that takes a multiplication for each word, where shared memory would take 20 KiB and
//              as long as the product itself
//   o          goes out through the chunk's values, once all have read them
//
// Shared memory is 44.5 KiB forward and 70.5 KiB of gradients. Of a chunk of 64 tokens, and 64 columns
// of v, the tensor cores have 200 products m16n8k16 a warp forward, and shared memory gives 2.3 KiB for
// each of them at most: the state as a right side, 20 KiB a warp, is most of that.
//
// Synchronisation, a chunk: all meet once they have read the state, and once they have written the next
// one and their copies are there.
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
