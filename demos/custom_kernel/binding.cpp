// The Python functions `attention(q, k, v)` and `flash_attention_2(q, k, v)`: checks, the output,
// and the calls into the two kernels.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

#include "kernels.h"

template <auto kernel>
torch::Tensor run(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
  for (const torch::Tensor& t : {q, k, v}) {
    TORCH_CHECK(t.is_cuda() && t.device() == q.device() && t.scalar_type() == torch::kBFloat16 &&
                    t.is_contiguous(),
                "attention: q, k and v must be contiguous bfloat16 tensors of one GPU");
    TORCH_CHECK(t.dim() == 3 && t.sizes() == q.sizes() && t.size(2) == 64,
                "attention: q, k and v must all be [heads, length, 64], got ", t.sizes());
  }
  TORCH_CHECK(q.size(0) >= 1 && q.size(0) <= 65535, "attention: heads must be 1 to 65535, got ",
              q.size(0));
  TORCH_CHECK(q.size(1) >= 64 && q.size(1) <= 1 << 24 && q.size(1) % 64 == 0,
              "attention: length must be a multiple of 64 from 64 to 2^24, got ", q.size(1));
  const c10::cuda::CUDAGuard guard(q.device());
  torch::Tensor o = torch::empty_like(q);
  const cudaError_t status =
      kernel(q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), int(q.size(0)), int(q.size(1)),
             c10::cuda::getCurrentCUDAStream());
  TORCH_CHECK(status == cudaSuccess, "attention: ", cudaGetErrorString(status));
  return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("attention", &run<attention>);
  m.def("flash_attention_2", &run<flash_attention_2>);
}
