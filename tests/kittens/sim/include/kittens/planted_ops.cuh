// Stands for a header of the tile library, which reports look through to the kernel's own line.
#pragma once

#include "kittens/arch/barrier.cuh"
#include "kittens/arch/shuffle.cuh"

namespace kittens::testing {

inline constexpr int kInlinedLine = __LINE__ + 1;
KITTENS_DEVICE void inlined_sync() { arch::sync_block(); }

inline constexpr int kCalledLine = __LINE__ + 1;
[[gnu::noinline]] inline int called_shuffle(int v) { return arch::shuffle_xor(v, 1); }

}  // namespace kittens::testing
