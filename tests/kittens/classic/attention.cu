// Attention as the literature writes it: q, k, v and o are [heads, n, 64] in bf16, a block of four
// or eight warps does one head, and n is a multiple of what they do together, 16 rows each. Nothing
// of the project is used but <kittens.cuh>.
#include <kittens.cuh>

#ifndef NUM_WORKERS
#define NUM_WORKERS 4
#endif

using namespace kittens;

__global__ void attend_ker64(int n, const bf16* __restrict__ __q__, const bf16* __restrict__ __k__,
                             const bf16* __restrict__ __v__, bf16* __o__) {
  auto warpid = threadIdx.x / 32;
  auto block_start = blockIdx.x * (n * 64);
  const bf16 *_q = __q__ + block_start, *_k = __k__ + block_start, *_v = __v__ + block_start;
  bf16* _o = __o__ + block_start;

  extern __shared__ alignment_dummy __shm[];
  shared_allocator al((int*)&__shm[0]);
  st_bf_1x4<ducks::st_layout::swizzle>(&k_smem)[NUM_WORKERS] =
      al.allocate<st_bf_1x4<ducks::st_layout::swizzle>, NUM_WORKERS>();
  st_bf_1x4<ducks::st_layout::swizzle>(&v_smem)[NUM_WORKERS] =
      al.allocate<st_bf_1x4<ducks::st_layout::swizzle>, NUM_WORKERS>();

  rt_bf_1x4<> q_reg, k_reg, v_reg;
  rt_fl_1x1<> att_block;
  rt_bf_1x1<> att_block_mma;
  rt_fl_1x4<> o_reg;
  rt_fl_1x1<>::col_vec max_vec_last, max_vec;
  rt_fl_1x1<>::col_vec norm_vec_last, norm_vec;

  int qo_blocks = n / (q_reg.rows * NUM_WORKERS), kv_blocks = n / (q_reg.rows * NUM_WORKERS);

  for (auto q_blk = 0; q_blk < qo_blocks; q_blk++) {
    load(q_reg, _q + (q_blk * NUM_WORKERS + warpid) * q_reg.num_elements, q_reg.cols);
    mul(q_reg, q_reg, __float2bfloat16(0.125f));

    neg_infty(max_vec);
    zero(norm_vec);
    zero(o_reg);

    for (auto kv_idx = 0; kv_idx < kv_blocks; kv_idx++) {
      load(v_smem[warpid], _v + (kv_idx * NUM_WORKERS + warpid) * q_reg.num_elements, q_reg.cols);
      load(k_smem[warpid], _k + (kv_idx * NUM_WORKERS + warpid) * q_reg.num_elements, q_reg.cols);
      __syncthreads();

      for (int subtile = 0; subtile < NUM_WORKERS; subtile++) {
        load(k_reg, k_smem[subtile]);
        zero(att_block);
        mma_ABt(att_block, q_reg, k_reg, att_block);

        copy(norm_vec_last, norm_vec);
        copy(max_vec_last, max_vec);

        row_max(max_vec, att_block, max_vec);
        sub_row(att_block, att_block, max_vec);
        exp(att_block, att_block);

        sub(max_vec_last, max_vec_last, max_vec);
        exp(max_vec_last, max_vec_last);
        mul(norm_vec, norm_vec, max_vec_last);

        row_sum(norm_vec, att_block, norm_vec);
        div_row(att_block, att_block, norm_vec);

        mul(norm_vec_last, norm_vec_last, max_vec_last);
        div(norm_vec_last, norm_vec_last, norm_vec);

        copy(att_block_mma, att_block);

        load(v_reg, v_smem[subtile]);
        rt_bf_1x4<ducks::rt_layout::col>& v_reg_col = swap_layout_inplace(v_reg);

        mul_row(o_reg, o_reg, norm_vec_last);
        mma_AB(o_reg, att_block_mma, v_reg_col, o_reg);
      }
      __syncthreads();
    }

    store(_o + (q_blk * NUM_WORKERS + warpid) * q_reg.num_elements, o_reg, q_reg.cols);
  }
}

void attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n,
               cudaStream_t stream) {
  constexpr int kSharedBytes = 2 * NUM_WORKERS * sizeof(st_bf_1x4<>);
  attend_ker64<<<heads, NUM_WORKERS * 32, kSharedBytes, stream>>>(n, q, k, v, o);
}
