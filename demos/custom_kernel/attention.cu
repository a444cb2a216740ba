// FlashAttention, forward: o = softmax(q kᵀ / 8) v, for q, k, v and o [heads, length, 64] in bf16.
//
// A block has four warps and works on 64 rows of q, 16 a warp. All four load the next 64 keys and
// values into shared memory, 16 each; then every warp walks over them, 16 at a time, with a running
// maximum and a running sum per row, and an o that is always the right one for the keys seen so
// far.
#include "kernels.h"

#include <kittens.cuh>

using namespace kittens;

constexpr int kWarps = 4;

__global__ void __launch_bounds__(kWarps * 32)
    attention_kernel(const bf16* q, const bf16* k, const bf16* v, bf16* o, int length) {
  extern __shared__ alignment_dummy __shm[];
  shared_allocator al((int*)&__shm[0]);
  auto& k_shared = al.allocate<st_bf_1x4<>, kWarps>();
  auto& v_shared = al.allocate<st_bf_1x4<>, kWarps>();

  const int64_t head = int64_t{blockIdx.y} * length * 64;
  const int64_t rows =
      head + (blockIdx.x * kWarps + warpid()) * 16 * 64;  // this warp's, of q and o

  rt_bf_1x4<> q_rows, k_rows, v_rows;  // 16 × 64
  rt_fl_1x1<> scores;                  // 16 × 16
  rt_bf_1x1<> weights;
  rt_fl_1x4<> o_rows;
  rt_fl_1x1<>::col_vec maximum, old_maximum, sum, old_sum;  // one value per row

  load(q_rows, q + rows, 64);
  mul(q_rows, q_rows, 0.125f);  // 1 / √64, exact in bf16
  neg_infty(maximum);
  zero(sum);
  zero(o_rows);

  for (int first = 0; first < length; first += kWarps * 16) {
    load(k_shared[warpid()], k + head + (first + warpid() * 16) * 64, 64);
    load(v_shared[warpid()], v + head + (first + warpid() * 16) * 64, 64);
    __syncthreads();  // all 64 keys and values are there
    for (int part = 0; part < kWarps; ++part) {
      load(k_rows, k_shared[part]);
      zero(scores);
      mma_ABt(scores, q_rows, k_rows, scores);

      copy(old_maximum, maximum);
      copy(old_sum, sum);
      row_max(maximum, scores, maximum);
      sub_row(scores, scores, maximum);
      exp(scores, scores);
      sub(old_maximum, old_maximum, maximum);
      exp(old_maximum, old_maximum);  // what the old sums are worth under the new maximum
      mul(old_sum, old_sum, old_maximum);
      row_sum(sum, scores, old_sum);

      div_row(scores, scores, sum);
      copy(weights, scores);
      div(old_sum, old_sum, sum);
      mul_row(o_rows, o_rows, old_sum);
      load(v_rows, v_shared[part]);
      auto& v_columns = swap_layout_inplace(v_rows);  // the second factor of a · b
      mma_AB(o_rows, weights, v_columns, o_rows);
    }
    __syncthreads();  // nobody reads them any more
  }
  store(o + rows, o_rows, 64);
}

cudaError_t attention(const attention_tensors& x, cudaStream_t stream) {
  const dim3 blocks(x.length / (kWarps * 16), x.heads);
  constexpr int kSharedBytes = 2 * kWarps * sizeof(st_bf_1x4<>);
  attention_kernel<<<blocks, kWarps * 32, kSharedBytes, stream>>>(
      static_cast<const bf16*>(x.q), static_cast<const bf16*>(x.k), static_cast<const bf16*>(x.v),
      static_cast<bf16*>(x.o), x.length);
  return cudaGetLastError();
}
