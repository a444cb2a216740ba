// Attention for H100 as the literature of 2024 writes it: q, k, v and o are [heads, n, D] in bf16,
// tiles one below the other, and n is a multiple of 128. A block does 128 rows of q: a producer's
// warp keeps TMA busy, and of two warpgroups that compute each has 64 rows. Nothing of the project
// is used but <kittens/classic.cuh>.
#include <kittens/classic.cuh>

using namespace kittens;

constexpr int NUM_CONSUMERS = 2;
constexpr int NUM_WORKERS = (NUM_CONSUMERS + 1) * WARPGROUP_WARPS;
constexpr int STAGES = 2;

template <int D>
struct fwd_attend_tiles {
  static constexpr int qo_height = 4, kv_height = 512 / D, width = D / TILE_DIM;
  using q = st_bf<qo_height, width, ducks::st_layout::wgmma_swizzle>;
  using k = st_bf<kv_height, width, ducks::st_layout::wgmma_swizzle>;
  using v = st_bf<kv_height, width, ducks::st_layout::wgmma_interleave>;
  using o = st_bf<qo_height, width, ducks::st_layout::swizzle>;

  static constexpr int block_rows = NUM_CONSUMERS * q::rows;
  static constexpr int shared_bytes =
      1024 + size_bytes<q> * NUM_CONSUMERS + size_bytes<k, v> * STAGES;
};

template <int D, bool causal>
__global__ void __launch_bounds__(NUM_WORKERS* WARP_THREADS, 1)
    fwd_attend_ker_dim(int n, const CUtensorMap* tma_q, const CUtensorMap* tma_k,
                       const CUtensorMap* tma_v, CUtensorMap* tma_o) {
  using tiles = fwd_attend_tiles<D>;
  using q_tile = typename tiles::q;
  using k_tile = typename tiles::k;
  using v_tile = typename tiles::v;
  using o_tile = typename tiles::o;

  extern __shared__ alignment_dummy __shm[];
  tma_swizzle_allocator al((int*)&__shm[0]);
  q_tile(&q_smem)[NUM_CONSUMERS] = al.allocate<q_tile, NUM_CONSUMERS>();
  k_tile(&k_smem)[STAGES] = al.allocate<k_tile, STAGES>();
  v_tile(&v_smem)[STAGES] = al.allocate<v_tile, STAGES>();
  __shared__ uint64_t q_arrived;
  __shared__ uint64_t kv_arrived[STAGES];
  __shared__ uint64_t kv_free[STAGES];

  int warpid = kittens::warpid();
  int warpgroupid = warpid / WARPGROUP_WARPS;
  int first_row = blockIdx.x * tiles::block_rows;
  int rows_seen = causal ? first_row + tiles::block_rows : n;
  int kv_blocks = rows_seen / k_tile::rows;

  if (warpid == 0) {
    tma::init_barrier<q_tile, NUM_CONSUMERS>(q_arrived, 1);
    for (int s = 0; s < STAGES; s++) {
      tma::init_barrier(kv_arrived[s], 1);
      tma::init_barrier(kv_free[s], NUM_CONSUMERS * WARPGROUP_WARPS);
    }
  }
  __syncthreads();

  if (warpgroupid == NUM_CONSUMERS) {
    warpgroup::decrease_registers<24>();
    if (warpgroup::warpid() == 0) {
      int q_index = blockIdx.y * (n / q_tile::rows) + blockIdx.x * NUM_CONSUMERS;
      for (int w = 0; w < NUM_CONSUMERS; w++) {
        tma::load_async(q_smem[w], tma_q, q_arrived, q_index + w);
      }
      int kv_index = blockIdx.y * (n / k_tile::rows);
      for (int i = 0; i < kv_blocks; i++) {
        int stage = i % STAGES, round = i / STAGES;
        if (round > 0) wait(kv_free[stage], (round - 1) % 2);
        tma::set_bytes(kv_arrived[stage], size_bytes<k_tile, v_tile>);
        tma::load_async(k_smem[stage], tma_k, kv_arrived[stage], kv_index + i);
        tma::load_async(v_smem[stage], tma_v, kv_arrived[stage], kv_index + i);
      }
    }
    return;
  }

  warpgroup::increase_registers<240>();
  rt_fl<1, tiles::kv_height> att_block;
  rt_bf<1, tiles::kv_height> att_block_mma;
  rt_fl<1, tiles::width> o_reg;
  col_vec<rt_fl<1, tiles::kv_height>> max_vec, max_vec_last, norm_vec;
  neg_infty(max_vec);
  zero(norm_vec);
  zero(o_reg);
  first_row += warpgroupid * q_tile::rows;

  // A power of two, which costs no bit of q; the rest of the scale is the scores'.
  constexpr float q_scale = D == 64 ? 0.125f : 0.0625f;
  constexpr float score_scale = 1.44269504f * (D == 64 ? 1.0f : 1.41421356f);
  tma::arrive_and_wait(q_arrived, 0);
  warpgroup::mul(q_smem[warpgroupid], q_smem[warpgroupid], __float2bfloat16(q_scale));
  warpgroup::sync(warpgroupid + 1);

  for (int i = 0; i < kv_blocks; i++) {
    int stage = i % STAGES, first_key = i * k_tile::rows;
    tma::arrive_and_wait(kv_arrived[stage], (i / STAGES) % 2);
    warpgroup::mma_fence(att_block);
    warpgroup::mm_ABt(att_block, q_smem[warpgroupid], k_smem[stage]);
    warpgroup::mma_commit_group();
    copy(max_vec_last, max_vec);
    warpgroup::mma_async_wait();

    mul(att_block, att_block, score_scale);
    if (causal && first_key + k_tile::rows > first_row) {
      warpgroup::tril(att_block, att_block, first_row - first_key,
                      base_types::constants<float>::neg_infty());
    }
    row_max(max_vec, att_block, max_vec);
    sub_row(att_block, att_block, max_vec);
    exp2(att_block, att_block);
    sub(max_vec_last, max_vec_last, max_vec);
    exp2(max_vec_last, max_vec_last);
    mul(norm_vec, norm_vec, max_vec_last);
    row_sum(norm_vec, att_block, norm_vec);
    copy(att_block_mma, att_block);
    mul_row(o_reg, o_reg, max_vec_last);

    warpgroup::mma_fence(o_reg);
    warpgroup::mma_AB(o_reg, att_block_mma, v_smem[stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait();
    if (laneid() == 0) arrive(kv_free[stage]);
  }

  // Every warp has read q: o takes its place.
  div_row(o_reg, o_reg, norm_vec);
  o_tile* o_smem = reinterpret_cast<o_tile*>(q_smem);
  warpgroup::sync(warpgroupid + 1);
  warpgroup::store(o_smem[warpgroupid], o_reg);
  warpgroup::sync(warpgroupid + 1);
  if (warpgroup::warpid() == 0) {
    int o_index = blockIdx.y * (n / o_tile::rows) + blockIdx.x * NUM_CONSUMERS + warpgroupid;
    tma::store_async(tma_o, o_smem[warpgroupid], o_index);
    tma::store_commit_group();
  }
  tma::store_async_wait();
}

template <int D, bool causal>
void attend(const CUtensorMap* tma_q, const CUtensorMap* tma_k, const CUtensorMap* tma_v,
            CUtensorMap* tma_o, int heads, int n, cudaStream_t stream) {
  constexpr int kThreads = NUM_WORKERS * WARP_THREADS;
  constexpr int kSharedBytes = fwd_attend_tiles<D>::shared_bytes;
  auto kernel = fwd_attend_ker_dim<D, causal>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  dim3 grid(n / fwd_attend_tiles<D>::block_rows, heads);
  kernel<<<grid, kThreads, kSharedBytes, stream>>>(n, tma_q, tma_k, tma_v, tma_o);
}

template <int D, bool causal>
void launch_attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n) {
  using tiles = fwd_attend_tiles<D>;
  CUtensorMap* tma_q =
      tma::allocate_and_create_tensor_map<typename tiles::q>(q, heads * n / tiles::q::rows);
  CUtensorMap* tma_k =
      tma::allocate_and_create_tensor_map<typename tiles::k>(k, heads * n / tiles::k::rows);
  CUtensorMap* tma_v =
      tma::allocate_and_create_tensor_map<typename tiles::v>(v, heads * n / tiles::v::rows);
  CUtensorMap* tma_o =
      tma::allocate_and_create_tensor_map<typename tiles::o>(o, heads * n / tiles::o::rows);

  attend<D, causal>(tma_q, tma_k, tma_v, tma_o, heads, n, nullptr);
  for (CUtensorMap* map : {tma_q, tma_k, tma_v, tma_o}) cudaFree(map);  // waits for the kernel
}

void attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n, int D,
               bool causal) {
  auto launch = D == 64 ? (causal ? launch_attention<64, true> : launch_attention<64, false>)
                        : (causal ? launch_attention<128, true> : launch_attention<128, false>);
  launch(q, k, v, o, heads, n);
}
