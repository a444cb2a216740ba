// The kernels of tests/kittens/classic behind a C interface, and beside them two of the ladder,
// demos/custom_kernel: a library of its own, which classic_library.py builds and calls. Pointers
// are to the GPU's memory, but for maps, which are the host's while they are filled. What went
// wrong is returned, or null.
#include <kittens/classic.cuh>

#include <exception>
#include <string>

#include "kernels.h"  // the ladder's

namespace four_warps {
#define NUM_WORKERS 4
#include "attention.cu"
#undef NUM_WORKERS
}  // namespace four_warps
namespace eight_warps {
#define NUM_WORKERS 8
#include "attention.cu"
#undef NUM_WORKERS
}  // namespace eight_warps
namespace classic_kernels {
#include "h100_attention.cu"
#include "h100_gemm.cu"
#include "rows/layer_norm.cu"
#include "rows/rotary.cu"
#include "rows/row_sum.cu"
}  // namespace classic_kernels

#define KITTENS_CLASSIC_FUNCTION extern "C" __attribute__((visibility("default"))) const char*

namespace {

using namespace kittens;

template <class F>
const char* error_of(F f) {
  static thread_local std::string said;
  try {
    f();
  } catch (const std::exception& error) {
    said = error.what();
    return said.c_str();
  }
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

template <int D>
void fill_attention_maps(CUtensorMap* maps, const bf16* q, const bf16* k, const bf16* v,
                         const bf16* o, int rows) {
  using tiles = classic_kernels::fwd_attend_tiles<D>;
  tma::create_tensor_map<typename tiles::q>(maps, q, rows / tiles::q::rows);
  tma::create_tensor_map<typename tiles::k>(maps + 1, k, rows / tiles::k::rows);
  tma::create_tensor_map<typename tiles::v>(maps + 2, v, rows / tiles::v::rows);
  tma::create_tensor_map<typename tiles::o>(maps + 3, o, rows / tiles::o::rows);
}

}  // namespace

// q, k, v and o [heads, n, 64]; 4 warps, or 8.
KITTENS_CLASSIC_FUNCTION classic_attention(int warps, const bf16* q, const bf16* k, const bf16* v,
                                           bf16* o, int heads, int n, cudaStream_t stream) {
  const auto launch = warps == 4 ? four_warps::attention : eight_warps::attention;
  return error_of([&] { launch(q, k, v, o, heads, n, stream); });
}

// Four maps, of q, k, v and o [heads, n, D], D 64 or 128.
KITTENS_CLASSIC_FUNCTION classic_h100_attention_maps(CUtensorMap* maps, const bf16* q,
                                                     const bf16* k, const bf16* v, const bf16* o,
                                                     int heads, int n, int D) {
  const auto fill = D == 64 ? fill_attention_maps<64> : fill_attention_maps<128>;
  return error_of([&] { fill(maps, q, k, v, o, heads * n); });
}
KITTENS_CLASSIC_FUNCTION classic_h100_attention(CUtensorMap* maps, int heads, int n, int D,
                                                int causal, cudaStream_t stream) {
  using classic_kernels::attend;
  const auto launch = D == 64 ? (causal ? attend<64, true> : attend<64, false>)
                              : (causal ? attend<128, true> : attend<128, false>);
  return error_of([&] { launch(maps, maps + 1, maps + 2, maps + 3, heads, n, stream); });
}

// Three maps, of a [m, k], b [k, n] and c [m, n].
KITTENS_CLASSIC_FUNCTION classic_h100_gemm_maps(CUtensorMap* maps, const bf16* a, const bf16* b,
                                                const bf16* c, int m, int n, int k) {
  using namespace classic_kernels;
  return error_of([&] {
    tma::create_tensor_map<gemm_a>(maps, a, m / gemm_a::rows, k / gemm_a::cols);
    tma::create_tensor_map<gemm_b>(maps + 1, b, k / gemm_b::rows, n / gemm_b::cols);
    tma::create_tensor_map<gemm_c>(maps + 2, c, m / gemm_c::rows, n / gemm_c::cols);
  });
}
KITTENS_CLASSIC_FUNCTION classic_h100_gemm(CUtensorMap* maps, int m, int n, int k,
                                           cudaStream_t stream) {
  return error_of([&] { classic_kernels::launch_gemm(maps, maps + 1, maps + 2, m, n, k, stream); });
}

// x and y [rows, 1024].
KITTENS_CLASSIC_FUNCTION classic_layer_norm(const bf16* x, const bf16* weight, const bf16* bias,
                                            bf16* y, int rows, cudaStream_t stream) {
  return error_of([&] { classic_kernels::layer_norm(x, weight, bias, y, rows, stream); });
}

// x and y [heads, n, 128], cos and sin [n, 64].
KITTENS_CLASSIC_FUNCTION classic_rotary(const bf16* x, const bf16* cos, const bf16* sin, bf16* y,
                                        int heads, int n, cudaStream_t stream) {
  return error_of([&] { classic_kernels::rotary(x, cos, sin, y, heads, n, stream); });
}

// x [rows, columns].
KITTENS_CLASSIC_FUNCTION classic_row_sums(const bf16* x, float* sums, int rows, int columns,
                                          cudaStream_t stream) {
  return error_of([&] { classic_kernels::row_sums(x, sums, rows, columns, stream); });
}

// The ladder's: its fourth rung, and c = a bᵀ with b [n, k].
KITTENS_CLASSIC_FUNCTION ladder_attention(const bf16* q, const bf16* k, const bf16* v, bf16* o,
                                          int heads, int n, int D, int causal,
                                          cudaStream_t stream) {
  return error_of([&] { flash_attention_3({q, k, v, o, heads, n}, D, causal != 0, stream); });
}
KITTENS_CLASSIC_FUNCTION ladder_gemm(const bf16* a, const bf16* b, bf16* c, int m, int n, int k,
                                     cudaStream_t stream) {
  return error_of([&] { gemm(a, b, c, m, n, k, stream); });
}
