// A number that tells matrices apart, for products_cublaslt.cpp: sums of integers, in any order.
#include <kittens.cuh>
#include <kittens/host/launch.cuh>

#include "kernels.h"

namespace gpt2 {
namespace {

using namespace kittens;

constexpr int kThreads = 256, kBlocks = int(kDigestParts) / kThreads;
constexpr int kRun = 8;  // 16 bytes, as so many bfloat16

// Numbers that have nothing to do with one another: splitmix64.
KITTENS_DEVICE uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// parts[thread] = Σ over its runs, of 64 bits times an odd factor of their own
__global__ void __launch_bounds__(kThreads)
    digest_kernel(int64_t rows, int64_t runs, int64_t stride, const bf16* x, uint64_t* parts) {
  const int64_t thread = int64_t{arch::block_x()} * kThreads + arch::thread_id();
  uint64_t sum = 0;
  for (int64_t at = thread; at < rows * runs; at += kDigestParts) {
    lane_run<bf16, kRun> run;
    detail::run_access<bf16, kRun>::load(run, x + at / runs * stride + at % runs * kRun, true);
    const uint64_t factor = mixed(uint64_t(at));
    sum += (run.words[0] | uint64_t{run.words[1]} << 32) * (factor | 1);
    sum += (run.words[2] | uint64_t{run.words[3]} << 32) * (mixed(factor) | 1);
  }
  arch::store_global(parts + thread, sum);
}

}  // namespace

void digest(const matrix& m, uint64_t* parts, stream s) {
  const int64_t halves = kittens::host::bytes_of(m.type) / int64_t{sizeof(bf16)};
  host::launch(digest_kernel, {.grid = {kBlocks}, .block = {kThreads}}, s, m.rows,
               m.width * halves / kRun, m.stride * halves, static_cast<const bf16*>(m.data), parts);
}

}  // namespace gpt2
