// A kernel by someone who knows the tile vocabulary alone (DESIGN, section 3): no header of the
// project but <kittens.cuh>, CUDA's own words for everything else.
//
//   p = softmax over the first `valid` columns of (a b),   s = Σ p² of each row
//
// a [rows, 128] and b [128, 64] in fp16, p [rows, 64] and s [rows] in fp32; columns from `valid` on
// are 0. A block of four warps does 64 rows: together they bring the 64 × 64 parts of a and b into
// shared memory, and each multiplies its own 16 rows.
#include <kittens.cuh>

using namespace kittens;

constexpr int kDepth = 128, kWidth = 64;

__global__ void project(gl<const half> a, gl<const half> b, gl<float> p, float* s, int valid) {
  const int row = blockIdx.x * 64 + threadIdx.x;
  extern __shared__ alignment_dummy __shm[];
  shared_allocator al((int*)&__shm[0]);
  st_hf<64, 64>(&a_part)[2] = al.allocate<st_hf<64, 64>, 2>();
  auto& b_part = al.allocate<st_hf<64, 64>>();
  auto& sums = al.allocate<sv<float, 64>>();

  rt_hf<16, 64> rows;
  rt_hf<64, 64, ducks::rt_layout::col> columns;
  rt_fl<16, kWidth> product, weights;
  rt_fl<16, kWidth>::col_vec largest, total, squares;
  rt_fl<16, kWidth>::row_vec bias;

  using block = group<4>;
  block::load_async(a_part[0], a, {.r = int(blockIdx.x), .c = 0});
  block::load_async(a_part[1], a, {.r = int(blockIdx.x), .c = 1});
  load_async_commit();

  zero(product);
  for (int part = 0; part < kDepth / 64; ++part) {
    block::load(b_part, b, {.r = part, .c = 0});
    load_async_wait<0>();
    __syncthreads();
    block::load(rows, a_part[part]);  // this warp's 16 of the 64
    load(columns, b_part);
    mma_AB(product, rows, columns, product);
    __syncthreads();
  }

  one(bias);
  right_fill(product, product, valid, -INFINITY);
  sub_col(product, product, bias);  // the softmax does not see it
  row_max(largest, product);
  sub_row(weights, product, largest);
  exp(weights, weights);
  row_sum(total, weights);
  div_row(weights, weights, total);
  warpgroup::store(p, weights, {.r = int(blockIdx.x), .c = 0});

  mul(product, weights, weights);
  row_sum(squares, product);
  warpgroup::store(sums, squares);
  __syncthreads();
  if (threadIdx.x < 64 && row < p.rows) s[row] = sums.data[threadIdx.x];
}

void projection(const half* a, const half* b, float* p, float* s, int rows, int valid) {
  constexpr int kSharedBytes = 3 * sizeof(st_hf<64, 64>) + sizeof(sv<float, 64>);
  project<<<(rows + 63) / 64, 128, kSharedBytes>>>(
      gl<const half>::matrix(a, rows, kDepth, kDepth),
      gl<const half>::matrix(b, kDepth, kWidth, kWidth), gl<float>::matrix(p, rows, kWidth, kWidth),
      s, valid);
}
