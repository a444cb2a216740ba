// arch/wgmma.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/wgmma.cuh"
#include "sim/matrix_api.hpp"

namespace kittens::arch {

template <matrix_element T, int Width, major A = major::k, major B = major::k>
KITTENS_DEVICE void wgmma(float (&d)[Width / 2], uint64_t a, uint64_t b, bool accumulate,
                          KITTENS_CALL_SITE) {
  static_assert(is_wgmma_width<Width>, "the width of a wgmma is a multiple of 8 up to 256");
  sim::wgmma({.type = std::same_as<T, __half> ? sim::matrix_type::half : sim::matrix_type::bf16,
              .width = Width,
              .a_is_mn_major = A == major::mn,
              .b_is_mn_major = B == major::mn,
              .accumulate = accumulate,
              .a = a,
              .b = b},
             d, nullptr, site);
  sim::stay_on_stack();
}

template <matrix_element T, int Width, major B = major::k>
KITTENS_DEVICE void wgmma(float (&d)[Width / 2], const uint32_t (&a)[4], uint64_t b,
                          bool accumulate, KITTENS_CALL_SITE) {
  static_assert(is_wgmma_width<Width>, "the width of a wgmma is a multiple of 8 up to 256");
  sim::wgmma({.type = std::same_as<T, __half> ? sim::matrix_type::half : sim::matrix_type::bf16,
              .width = Width,
              .a_in_registers = true,
              .b_is_mn_major = B == major::mn,
              .accumulate = accumulate,
              .b = b},
             d, a, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void wgmma_fence() { sim::wgmma_fence(); }

KITTENS_DEVICE void wgmma_commit() { sim::wgmma_commit(); }

template <int N>
KITTENS_DEVICE void wgmma_wait(KITTENS_CALL_SITE) {
  static_assert(N >= 0 && N <= 7, "wgmma_wait takes 0 to 7 groups that may still be under way");
  sim::wgmma_wait(N, site);
  sim::stay_on_stack();
}

template <class... R>
KITTENS_DEVICE void wgmma_hold(R&...) {}

KITTENS_DEVICE uint64_t matrix_descriptor(uint32_t shared_address, int leading_bytes,
                                          int stride_bytes, int swizzle_bytes, KITTENS_CALL_SITE) {
  sim::check_matrix(shared_address, leading_bytes, stride_bytes, swizzle_bytes, site);
  return detail::encode_matrix(shared_address, leading_bytes, stride_bytes, swizzle_bytes);
}

}  // namespace kittens::arch
