// The sum of each row of x [rows, columns] in bf16, as float: a block has 16 rows, of whose columns
// each of its warps adds up a part. Rows are a multiple of 16, columns of 512. Nothing of the
// project is used but <kittens/classic.cuh>.
#include <kittens/classic.cuh>

using namespace kittens;

constexpr int SUM_WARPS = 4;

__global__ void row_sum_ker(int columns, const bf16* __restrict__ __x__, float* __sums__) {
  auto warpid = threadIdx.x / 32;
  const bf16* _x = __x__ + size_t(blockIdx.x) * TILE_DIM * columns;

  extern __shared__ alignment_dummy __shm[];
  shared_allocator al((int*)&__shm[0]);
  sv_fl<1>(&parts)[SUM_WARPS] = al.allocate<sv_fl<1>, SUM_WARPS>();

  rt_fl<1, 8> tile;
  col_vec<rt_fl<1, 8>> sums, part;
  zero(sums);
  for (int column = warpid * tile.cols; column < columns; column += SUM_WARPS * tile.cols) {
    load(tile, _x + column, columns);
    row_sum(sums, tile, sums);
  }
  store(parts[warpid], sums);
  __syncthreads();

  if (warpid == 0) {
    for (int other = 1; other < SUM_WARPS; other++) {
      load(part, parts[other]);
      add(sums, sums, part);
    }
    store(__sums__ + blockIdx.x * TILE_DIM, sums);
  }
}

void row_sums(const bf16* x, float* sums, int rows, int columns, cudaStream_t stream) {
  constexpr int kSharedBytes = SUM_WARPS * sizeof(sv_fl<1>);
  dim3 grid(rows / TILE_DIM);
  row_sum_ker<<<grid, SUM_WARPS * 32, kSharedBytes, stream>>>(columns, x, sums);
}
