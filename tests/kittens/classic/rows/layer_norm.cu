// Layer norm over the last dimension of x [rows, 1024] in bf16, a row in the registers of one warp:
// y = (x − mean) / √(variance + 10⁻⁵) · weight + bias. Nothing of the project is used but
// <kittens/classic.cuh>.
#include <kittens/classic.cuh>

using namespace kittens;

constexpr int NORM_WARPS = 4, D_MODEL = 1024;

__global__ void layer_norm_ker(int rows, const bf16* __restrict__ __x__,
                               const bf16* __restrict__ __weight__,
                               const bf16* __restrict__ __bias__, bf16* __y__) {
  int row = blockIdx.x * NORM_WARPS + kittens::warpid();
  if (row >= rows) return;

  using from_memory = ducks::rv_layout::runs<8>;
  rv<float, D_MODEL, from_memory> x_reg;
  rv<bf16, D_MODEL, from_memory> weight, bias;
  load(x_reg, __x__ + row * D_MODEL);
  load(weight, __weight__);
  load(bias, __bias__);

  float mean, variance;
  sum(mean, x_reg);
  mean /= D_MODEL;
  sub(x_reg, x_reg, mean);
  dot(variance, x_reg, x_reg);
  variance /= D_MODEL;
  mul(x_reg, x_reg, 1.0f / sqrtf(variance + 1e-5f));
  fma(x_reg, x_reg, weight, bias);
  store(__y__ + row * D_MODEL, x_reg);
}

void layer_norm(const bf16* x, const bf16* weight, const bf16* bias, bf16* y, int rows,
                cudaStream_t stream) {
  dim3 grid((rows + NORM_WARPS - 1) / NORM_WARPS);
  layer_norm_ker<<<grid, NORM_WARPS * 32, 0, stream>>>(rows, x, weight, bias, y);
}
