// The same attention after FlashAttention-2: a warp has 32 rows of q, o is divided once, at the
// end, and the copy engine of sm_80 (cp.async) brings the next 64 keys and values while the tensor
// cores work on these.
#include <kittens.cuh>

#include "kernels.h"

using namespace kittens;

constexpr int kWarps = 4, kParts = 4;             // parts of 16 keys, one brought by each warp
constexpr float kScale = 0.125f * 1.4426950408f;  // 1 / √64; and exp(x) = 2^(x · log2 e)

struct stage {
  st_bf<16, 64> k[kParts], v[kParts];
};

__global__ void __launch_bounds__(kWarps * 32)
    flash_attention_2_kernel(gl<const bf16> q, gl<const bf16> k, gl<const bf16> v, gl<bf16> o) {
  extern __shared__ alignment_dummy __shm[];
  shared_allocator al((int*)&__shm[0]);
  auto& stages = al.allocate<stage, 2>();

  const int head = blockIdx.y, steps = int(k.rows) / 64;
  const coord mine = {.d = head, .r = int(blockIdx.x) * kWarps + warpid()};  // rows of q and o
  const auto ask = [&](int step) {
    if (step < steps) {
      const coord at = {.d = head, .r = step * kParts + warpid()};
      load_async(stages[step % 2].k[warpid()], k, at);
      load_async(stages[step % 2].v[warpid()], v, at);
    }
    load_async_commit();
  };

  rt_bf<32, 64> q_rows;
  rt_bf<16, 64> k_rows;
  rt_bf<16, 64, ducks::rt_layout::col> v_rows;
  rt_fl<32, 16> scores[kParts];
  rt_bf<32, 16> weights;
  rt_fl<32, 64> o_rows;
  rt_fl<32, 64>::col_vec maximum, shrink, sum;  // one value per row

  ask(0);
  load(q_rows, q, mine);  // past the last row: zeros
  neg_infty(maximum);
  zero(sum);
  zero(o_rows);

  for (int step = 0; step < steps; ++step) {
    ask(step + 1);
    load_async_wait<1>();  // all that was asked for but the next step
    __syncthreads();       // and by the other warps
    const stage& now = stages[step % 2];

    copy(shrink, maximum);
    for (int part = 0; part < kParts; ++part) {
      load(k_rows, now.k[part]);
      mm_ABt(scores[part], q_rows, k_rows);
      row_max(maximum, scores[part], maximum);
    }
    sub(shrink, shrink, maximum);
    mul(shrink, shrink, kScale);
    exp2(shrink, shrink);  // what all before is worth under the new maximum
    mul(sum, sum, shrink);
    mul_row(o_rows, o_rows, shrink);

    for (int part = 0; part < kParts; ++part) {
      map_rows([](float x, float top) { return arch::exp2_approx((x - top) * kScale); },
               scores[part], scores[part], maximum);
      partial_row_sum(sum, scores[part], sum);
      copy(weights, scores[part]);
      load(v_rows, now.v[part]);
      mma_AB(o_rows, weights, v_rows, o_rows);
    }
    __syncthreads();  // nobody reads this stage any more
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
