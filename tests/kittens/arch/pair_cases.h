// fma_bf16_pairs, of words in memory: for test_pair_math.cu and tests/conformance/pairs.cu.
#pragma once

#include <cstdint>
#include <vector>

#include "harness.h"
#include "kittens/arch/pair_math.cuh"
#include "kittens/arch/thread.cuh"

namespace kittens::testing {

static __global__ void multiplies_pairs(const uint32_t* a, const uint32_t* b, const uint32_t* c,
                                        uint32_t* out, int count) {
  for (int i = arch::thread_id(); i < count; i += arch::block_threads()) {
    out[i] = arch::fma_bf16_pairs(a[i], b[i], c[i]);
  }
}

inline std::vector<uint32_t> fma_pairs(const std::vector<uint32_t>& a,
                                       const std::vector<uint32_t>& b,
                                       const std::vector<uint32_t>& c) {
  const buffer<uint32_t> left(a), right(b), added(c), to(a.size());
  run(multiplies_pairs, {.grid = {1}, .block = {128}}, left.data(), right.data(), added.data(),
      to.data(), static_cast<int>(a.size()));
  return to.get();
}

}  // namespace kittens::testing
