// The same attention after FlashAttention-2: a warp has 32 rows of q, o is divided once, at the
// end, the copy engine of sm_80 (cp.async) brings the next 64 keys and values while the tensor
// cores work on these, and products take them from shared memory as they are.
#include <kittens.cuh>

#include "kernels.h"

using namespace kittens;

constexpr int kWarps = 4, kKeys = 64;
constexpr float kScale = 0.125f * 1.4426950408f;  // 1 / √64; and exp(x) = 2^(x · log2 e)

struct stage {
  st_bf<kKeys, 64> k, v;
};

__global__ void __launch_bounds__(kWarps * 32)
    flash_attention_2_kernel(gl<const bf16> q, gl<const bf16> k, gl<const bf16> v, gl<bf16> o) {
  extern __shared__ alignment_dummy __shm[];
  shared_allocator al((int*)&__shm[0]);
  auto& stages = al.allocate<stage, 2>();

  const int head = blockIdx.y, steps = int(k.rows) / kKeys;
  const coord mine = {.d = head, .r = int(blockIdx.x) * kWarps + warpid()};  // rows of q and o
  const auto ask = [&](int step) {
    if (step < steps) {
      stage& next = stages[step % 2];
      const int64_t row = step * kKeys;
      group<kWarps>::load_async(next.k, k.row({.d = head, .r = row}), k.row_stride);
      group<kWarps>::load_async(next.v, v.row({.d = head, .r = row}), v.row_stride);
    }
    load_async_commit();
  };

  rt_bf<32, 64> q_rows;
  rt_fl<32, kKeys> scores;
  rt_bf<32, kKeys> weights;
  rt_fl<32, 64> o_rows;
  rt_fl<32, 64>::col_vec maximum, top, shrink, sum;  // one value per row

  ask(0);
  load(q_rows, q, mine);  // past the last row: zeros
  neg_infty(maximum);
  zero(sum);
  zero(o_rows);

  for (int step = 0; step < steps; ++step) {
    arch::cp_async_wait<0>();  // load_async_wait has a fence, too, which wgmma would need
    __syncthreads();  // all have what they asked for, and none reads the step before any more
    ask(step + 1);
    const stage& now = stages[step % 2];

    mm_ABt(scores, q_rows, now.k);
    copy(shrink, maximum);
    row_max(maximum, scores, maximum);
    mul(top, maximum, kScale);
    map([](float x, float y) { return arch::exp2_approx(fmaf(x, kScale, -y)); }, shrink, shrink,
        top);  // what all before is worth under the new maximum
    mul(sum, sum, shrink);
    mul_row(o_rows, o_rows, shrink);
    map_rows([](float x, float y) { return arch::exp2_approx(fmaf(x, kScale, -y)); }, scores,
             scores, top);
    partial_row_sum(sum, scores, sum);
    copy(weights, scores);
    mma_AB(o_rows, weights, now.v, o_rows);
  }
  finish_row_sum(sum);
  div_row(o_rows, o_rows, sum);
  store(o, o_rows, mine);  // past the last row: nothing
}

cudaError_t flash_attention_2(const attention_tensors& x, cudaStream_t stream) {
  const auto view = [&]<class T>(T* data) {
    return gl<T>{data, 1, x.heads, x.length, 64, 0, int64_t{x.length} * 64, 64};
  };
  const dim3 blocks((x.length + kWarps * 32 - 1) / (kWarps * 32), x.heads);
  flash_attention_2_kernel<<<blocks, kWarps * 32, 2 * sizeof(stage), stream>>>(
      view(static_cast<const bf16*>(x.q)), view(static_cast<const bf16*>(x.k)),
      view(static_cast<const bf16*>(x.v)), view(static_cast<bf16*>(x.o)));
  return cudaGetLastError();
}
