// Kernels that ptxas complains of: the gate of tests/ptxas must see each of them.
#include <kittens/arch/thread.cuh>
#include <kittens/arch/wgmma.cuh>

using namespace kittens;

namespace {

constexpr int kWidth = 64;

__device__ void finish(float* out, const float (&d)[kWidth / 2]) {
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) out[arch::thread_id() + 128 * i] = d[i];
}

}  // namespace

// A sum of the accumulators while the product is under way: ptxas waits for it first.
__global__ void reads_too_early(float* out, uint64_t a, uint64_t b, int steps) {
  float d[kWidth / 2] = {}, early = 0.0f;
  for (int i = 0; i < steps; ++i) {
    arch::wgmma_fence();
    arch::wgmma<__nv_bfloat16, kWidth>(d, a, b, true);
    arch::wgmma_commit();
    early += d[0];
    arch::wgmma_wait<0>();
  }
  d[0] += early;
  finish(out, d);
}

// The accumulators change between the products, with no fence in between: ptxas puts one there.
__global__ void lacks_a_fence(float* out, uint64_t a, uint64_t b, int steps) {
  float d[kWidth / 2] = {};
  for (int i = 0; i < steps; ++i) {
    arch::wgmma<__nv_bfloat16, kWidth>(d, a, b, true);
    arch::wgmma_commit();
    arch::wgmma_wait<0>();
    d[0] *= 2.0f;
  }
  finish(out, d);
}

// 512 threads a multiprocessor leave 128 registers each, and this one keeps 256 values alive.
__global__ void __launch_bounds__(512, 1) spills(const float* in, float* out, int n) {
  float kept[256];
#pragma unroll
  for (int i = 0; i < 256; ++i) kept[i] = in[arch::thread_id() * 256 + i];
  for (int step = 0; step < n; ++step) {
#pragma unroll
    for (int i = 0; i < 256; ++i) kept[i] = fmaf(kept[i], kept[255 - i], kept[(i + 7) % 256]);
  }
#pragma unroll
  for (int i = 0; i < 256; ++i) out[arch::thread_id() * 256 + i] = kept[i];
}
