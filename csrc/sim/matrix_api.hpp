// What kernels see of the simulated tensor cores, and of the registers of a block: what
// arch/sim/{mma,matrix,wgmma,registers}.hpp call.
#pragma once

#include <cstdint>

#include "sim/api.hpp"

namespace kittens::sim {

enum class matrix_type { bf16, half };

// ---- products and matrices of a warp
void mma_m16n8k16(matrix_type type, float* d, const uint32_t* a, const uint32_t* b, const float* c,
                  call_site site);
void load_matrix(uint32_t* d, int count, bool transposed, const void* row, call_site site);
void store_matrix(void* row, const uint32_t* s, int count, bool transposed, call_site site);
uint32_t transpose_matrix(uint32_t word, call_site site);

// ---- products of a warpgroup

// What one wgmma says.
struct wgmma_request {
  matrix_type type = matrix_type::bf16;
  int width = 0;
  bool a_in_registers = false;
  bool a_is_mn_major = false, b_is_mn_major = false;
  bool accumulate = false;
  uint64_t a = 0, b = 0;  // descriptors

  friend bool operator==(const wgmma_request&, const wgmma_request&) = default;
};

// The arguments of arch::matrix_descriptor.
void check_matrix(uint32_t shared_address, int leading_bytes, int stride_bytes, int swizzle_bytes,
                  call_site site);
// d: [width / 2], which stay the tensor core's until a wait. a: [4] if a_in_registers, else null.
void wgmma(const wgmma_request& request, float* d, const uint32_t* a, call_site site);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int groups_under_way, call_site site);

// ---- registers per thread
void raise_registers(int count, call_site site);
void lower_registers(int count, call_site site);

}  // namespace kittens::sim
