// arch/async_copy.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "sim/api.hpp"

namespace kittens::arch {

template <int Bytes>
KITTENS_DEVICE void cp_async(void* dst, const void* src, bool predicate = true, KITTENS_CALL_SITE) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp_async copies 4, 8 or 16 bytes");
  sim::cp_async(dst, src, Bytes, predicate, site);
  sim::stay_on_stack();
}

template <bool Uniform = true>
KITTENS_DEVICE void cp_async_evict_first(void* dst, const void* src, bool predicate = true,
                                         KITTENS_CALL_SITE) {
  cp_async<16>(dst, src, predicate, site);
}

KITTENS_DEVICE void cp_async_commit() { sim::cp_async_commit(); }

template <int N>
KITTENS_DEVICE void cp_async_wait() {
  static_assert(N >= 0, "cp_async_wait takes the number of groups that may still be under way");
  sim::cp_async_wait(N);
}

}  // namespace kittens::arch
