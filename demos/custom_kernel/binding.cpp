// The kernels as functions of Python: what they take, the output, the calls. Those for sm_90a alone
// are there if the program compiles for it, and says so by DEMO_SM90A.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

#include "kernels.h"

namespace {

using torch::Tensor;

constexpr int64_t kMost = 1 << 24;  // rows and columns

void check_tensor(const char* name, const Tensor& t, const Tensor& first, int rank) {
  TORCH_CHECK(t.is_cuda() && t.device() == first.device() && t.scalar_type() == torch::kBFloat16 &&
                  t.is_contiguous() && t.dim() == rank,
              name, ": expected contiguous bfloat16 tensors of ", rank,
              " dimensions on one GPU, got ", t.toString(), " ", t.sizes(), " on ", t.device());
}

cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream(); }

// o like q: `kernel` fills it in. The length is a multiple of `step`.
template <class Kernel>
Tensor run(const char* name, const Tensor& q, const Tensor& k, const Tensor& v, int step, bool wide,
           Kernel kernel) {
  for (const Tensor& t : {q, k, v}) {
    check_tensor(name, t, q, 3);
    TORCH_CHECK(t.sizes() == q.sizes(), name, ": q, k and v must have one shape, got ", q.sizes(),
                " and ", t.sizes());
  }
  TORCH_CHECK(q.size(0) >= 1 && q.size(0) <= 65535, name, ": heads must be 1 to 65535, got ",
              q.size(0));
  TORCH_CHECK(q.size(1) >= 1 && q.size(1) <= kMost && q.size(1) % step == 0, name,
              ": length must be a multiple of ", step, " up to 2^24, got ", q.size(1));
  TORCH_CHECK(q.size(2) == 64 || (wide && q.size(2) == 128), name, ": head dimension must be 64",
              wide ? " or 128" : "", ", got ", q.size(2));
  const c10::cuda::CUDAGuard guard(q.device());
  Tensor o = torch::empty_like(q);
  kernel(attention_tensors{q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), int(q.size(0)),
                           int(q.size(1))});
  return o;
}

void check(const char* name, cudaError_t status) {
  TORCH_CHECK(status == cudaSuccess, name, ": ", cudaGetErrorString(status));
}

Tensor run_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  return run("attention", q, k, v, 64, false,
             [](const auto& x) { check("attention", attention(x, stream())); });
}

Tensor run_flash_attention_2(const Tensor& q, const Tensor& k, const Tensor& v) {
  return run("flash_attention_2", q, k, v, 64, false,
             [](const auto& x) { check("flash_attention_2", flash_attention_2(x, stream())); });
}

#ifdef DEMO_SM90A
Tensor run_load_store_compute_finish(const Tensor& q, const Tensor& k, const Tensor& v) {
  return run("load_store_compute_finish", q, k, v, 64, false,
             [](const auto& x) { load_store_compute_finish(x, stream()); });
}

Tensor run_flash_attention_3(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  return run("flash_attention_3", q, k, v, 1, true,
             [&](const auto& x) { flash_attention_3(x, int(q.size(2)), causal, stream()); });
}

Tensor run_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  return run("linear_attention", q, k, v, 1, false,
             [](const auto& x) { linear_attention(x, stream()); });
}

Tensor run_gemm(const Tensor& a, const Tensor& b) {
  check_tensor("gemm", a, a, 2);
  check_tensor("gemm", b, a, 2);
  const int64_t m = a.size(0), n = b.size(0), k = a.size(1);
  TORCH_CHECK(b.size(1) == k, "gemm: a and b must have as many columns, got ", k, " and ",
              b.size(1));
  TORCH_CHECK(m >= 1 && m <= kMost, "gemm: a must have 1 to 2^24 rows, got ", m);
  TORCH_CHECK(n >= 8 && n <= kMost && n % 8 == 0,
              "gemm: b's rows must be a multiple of 8 up to 2^24, got ", n);
  TORCH_CHECK(k >= 8 && k <= kMost && k % 8 == 0,
              "gemm: columns must be a multiple of 8 up to 2^24, got ", k);
  const c10::cuda::CUDAGuard guard(a.device());
  Tensor c = torch::empty({m, n}, a.options());
  gemm(a.data_ptr(), b.data_ptr(), c.data_ptr(), int(m), int(n), int(k), stream());
  return c;
}
#endif

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  namespace py = pybind11;
  m.def("attention", &run_attention);
  m.def("flash_attention_2", &run_flash_attention_2);
#ifdef DEMO_SM90A
  m.def("load_store_compute_finish", &run_load_store_compute_finish);
  m.def("flash_attention_3", &run_flash_attention_3, py::arg("q"), py::arg("k"), py::arg("v"),
        py::arg("causal") = false);
  m.def("linear_attention", &run_linear_attention);
  m.def("gemm", &run_gemm);
#endif
}
