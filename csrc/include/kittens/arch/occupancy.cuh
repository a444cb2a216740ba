// What a multiprocessor has room for, where architectures differ.
//
//   min_blocks<Threads, Blocks>   of the blocks that are wanted, those whose threads there is room
//                                 for: the second argument of __launch_bounds__, whose first is
//                                 Threads. ptxas refuses more
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

template <int Threads, int Blocks>
inline constexpr int min_blocks =
    Blocks <= kMultiprocessorThreads / Threads ? Blocks : kMultiprocessorThreads / Threads;

}  // namespace kittens::arch
