// c = a b for H100 as the literature of 2024 writes it: a [m, k], b [k, n] and c [m, n] in bf16, m
// a multiple of 128, n of 256, k of 64. A block does 128 × 256 of c: a producer's warp keeps TMA
// busy, and two warpgroups have 64 rows each. Nothing of the project is used but
// <kittens/classic.cuh>.
#include <kittens/classic.cuh>

using namespace kittens;

constexpr int GEMM_CONSUMERS = 2, GEMM_STAGES = 4;
constexpr int GEMM_WORKERS = (GEMM_CONSUMERS + 1) * WARPGROUP_WARPS;
constexpr int SUPER_ROWS = 8;  // of blocks, that go through the columns together

using gemm_a = st_bf<4, 4, ducks::st_layout::wgmma_swizzle>;
using gemm_b = st_bf<4, 16, ducks::st_layout::wgmma_interleave>;
using gemm_c = st_bf<4, 16, ducks::st_layout::swizzle>;
constexpr int GEMM_SHARED_BYTES =
    1024 + GEMM_STAGES * (GEMM_CONSUMERS * size_bytes<gemm_a> + size_bytes<gemm_b>);

__global__ void __launch_bounds__(GEMM_WORKERS* WARP_THREADS, 1)
    gemm_ker(int m, int n, int k, const CUtensorMap* tma_a, const CUtensorMap* tma_b,
             CUtensorMap* tma_c) {
  extern __shared__ alignment_dummy __shm[];
  tma_swizzle_allocator al((int*)&__shm[0]);
  gemm_a(&a_smem)[GEMM_STAGES][GEMM_CONSUMERS] = al.allocate<gemm_a, GEMM_STAGES, GEMM_CONSUMERS>();
  gemm_b(&b_smem)[GEMM_STAGES] = al.allocate<gemm_b, GEMM_STAGES>();
  __shared__ uint64_t arrived[GEMM_STAGES];
  __shared__ uint64_t free_again[GEMM_STAGES];

  // SUPER_ROWS rows of blocks, column by column: what runs together reads little of a and b.
  int rows = m / (GEMM_CONSUMERS * gemm_c::rows), columns = n / gemm_c::cols;
  int first_row = blockIdx.x / (SUPER_ROWS * columns) * SUPER_ROWS;
  int rows_left = rows - first_row, rows_here = rows_left < SUPER_ROWS ? rows_left : SUPER_ROWS;
  int row = first_row + blockIdx.x % (SUPER_ROWS * columns) % rows_here;
  int column = blockIdx.x % (SUPER_ROWS * columns) / rows_here;

  int warpgroupid = kittens::warpid() / WARPGROUP_WARPS, steps = k / gemm_a::cols;
  if (kittens::warpid() == 0) {
    for (int s = 0; s < GEMM_STAGES; s++) {
      tma::init_barrier(arrived[s], 1);
      tma::init_barrier(free_again[s], GEMM_CONSUMERS * WARPGROUP_WARPS);
    }
  }
  __syncthreads();

  if (warpgroupid == GEMM_CONSUMERS) {
    warpgroup::decrease_registers<40>();
    if (warpgroup::warpid() == 0) {
      for (int i = 0; i < steps; i++) {
        int stage = i % GEMM_STAGES, round = i / GEMM_STAGES;
        if (round > 0) wait(free_again[stage], (round - 1) % 2);
        tma::set_bytes(arrived[stage], GEMM_CONSUMERS * size_bytes<gemm_a> + size_bytes<gemm_b>);
        for (int w = 0; w < GEMM_CONSUMERS; w++) {
          tma::load_async(a_smem[stage][w], tma_a, arrived[stage], row * GEMM_CONSUMERS + w, i);
        }
        tma::load_async(b_smem[stage], tma_b, arrived[stage], i, column);
      }
    }
    return;
  }

  warpgroup::increase_registers<232>();
  rt_fl<1, 16> c_reg;
  zero(c_reg);
  for (int i = 0; i < steps; i++) {
    int stage = i % GEMM_STAGES;
    tma::arrive_and_wait(arrived[stage], (i / GEMM_STAGES) % 2);
    warpgroup::mma_fence(c_reg);
    warpgroup::mma_AB(c_reg, a_smem[stage][warpgroupid], b_smem[stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<1>();  // the product before has read its tiles
    if (i > 0 && laneid() == 0) arrive(free_again[(i - 1) % GEMM_STAGES]);
  }
  warpgroup::mma_async_wait();

  // When both have read their last tiles, c takes the place of b.
  group<GEMM_CONSUMERS * WARPGROUP_WARPS>::sync(GEMM_CONSUMERS + 1);
  gemm_c* c_smem = reinterpret_cast<gemm_c*>(b_smem);
  warpgroup::store(c_smem[warpgroupid], c_reg);
  warpgroup::sync(warpgroupid + 1);
  if (warpgroup::warpid() == 0) {
    tma::store_async(tma_c, c_smem[warpgroupid], row * GEMM_CONSUMERS + warpgroupid, column);
    tma::store_commit_group();
  }
  tma::store_async_wait();
}

void launch_gemm(const CUtensorMap* tma_a, const CUtensorMap* tma_b, CUtensorMap* tma_c, int m,
                 int n, int k, cudaStream_t stream) {
  constexpr int kThreads = GEMM_WORKERS * WARP_THREADS, kSharedBytes = GEMM_SHARED_BYTES;
  cudaFuncSetAttribute(gemm_ker, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  dim3 grid(m / (GEMM_CONSUMERS * gemm_c::rows) * (n / gemm_c::cols));
  gemm_ker<<<grid, kThreads, kSharedBytes, stream>>>(m, n, k, tma_a, tma_b, tma_c);
}
