// Rotary position embedding of x [heads, n, 128] in bf16, its halves x1 and x2 rotated by the angle
// of their position, cos and sin [n, 64]: y = [x1 cos − x2 sin, x2 cos + x1 sin]. n is a multiple
// of
// 64. Nothing of the project is used but <kittens/classic.cuh>.
#include <kittens/classic.cuh>

using namespace kittens;

constexpr int ROTARY_WARPS = 4, HEAD_DIM = 128;

__global__ void rotary_ker(int n, const bf16* __restrict__ __x__, const bf16* __restrict__ __cos__,
                           const bf16* __restrict__ __sin__, bf16* __y__) {
  int position = (blockIdx.x * ROTARY_WARPS + kittens::warpid()) * TILE_DIM;
  auto start = (size_t(blockIdx.y) * n + position) * HEAD_DIM;
  const bf16* _x = __x__ + start;
  bf16* _y = __y__ + start;

  rt_fl<1, 4> x1, x2, cos, sin, y1, y2;
  load(x1, _x, HEAD_DIM);
  load(x2, _x + HEAD_DIM / 2, HEAD_DIM);
  load(cos, __cos__ + position * (HEAD_DIM / 2), HEAD_DIM / 2);
  load(sin, __sin__ + position * (HEAD_DIM / 2), HEAD_DIM / 2);

  mul(y2, x2, cos);
  fma(y2, x1, sin, y2);
  mul(y1, x1, cos);
  mul(x2, x2, sin);
  sub(y1, y1, x2);
  store(_y, y1, HEAD_DIM);
  store(_y + HEAD_DIM / 2, y2, HEAD_DIM);
}

void rotary(const bf16* x, const bf16* cos, const bf16* sin, bf16* y, int heads, int n,
            cudaStream_t stream) {
  dim3 grid(n / (ROTARY_WARPS * TILE_DIM), heads);
  rotary_ker<<<grid, ROTARY_WARPS * 32, 0, stream>>>(n, x, cos, sin, y);
}
