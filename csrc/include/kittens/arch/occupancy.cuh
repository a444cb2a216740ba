// What a multiprocessor has room for, where architectures differ.
//
//   int min_blocks(threads, blocks)   for __launch_bounds__(threads, min_blocks(threads, blocks)):
//   of
//                                     the blocks that are wanted, those whose threads there is room
//                                     for. ptxas refuses more
//
// 2048 threads; on sm_86, sm_89 and sm_120 1536 (CUDA C++ Programming Guide, Compute Capabilities).
// All of these have 65536 registers, so what fits 2048 threads of so many registers fits 1536.
#pragma once

namespace kittens::arch {

#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
inline constexpr int kMultiprocessorThreads = 1536;
#else
inline constexpr int kMultiprocessorThreads = 2048;
#endif

constexpr int min_blocks(int threads, int blocks) {
  return threads * blocks <= kMultiprocessorThreads ? blocks : kMultiprocessorThreads / threads;
}

}  // namespace kittens::arch
