// Matrix products by cuBLASLt. It stores columns, so a row-major product is the transposed one
// there: cᵀ = op(b)ᵀ · op(a)ᵀ, its first factor is b, and its rows are n.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels.h"
#include "products.h"

namespace gpt2 {
namespace {

constexpr int kMostAlgorithms = 8;
constexpr double kWorthIt = 0.98;
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what cuBLAS' manual advises for Hopper

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw error(std::string("cuBLASLt: ") + doing + ": " + cublasLtGetStatusString(status));
  }
}

void check(cudaError_t status, const char* doing) {
  if (status != cudaSuccess) {
    throw error(std::string("cuBLASLt: ") + doing + ": " + cudaGetErrorString(status));
  }
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "describing");
}

// Of a matrix whose rows are `columns` long in a row-major view.
cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, type, columns, rows, stride), "a layout");
  return made;
}

struct planned_product {
  product what;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms = {};  // the first is taken; then the others
  bool is_chosen = false;

  void destroy() const {
    cublasLtMatmulDescDestroy(desc);
    for (const auto one : {a, b, c}) cublasLtMatrixLayoutDestroy(one);
  }
};

}  // namespace

struct products::implementation {
  cublasLtHandle_t handle = nullptr;
  dtype type;
  std::vector<planned_product> planned;
  cudaEvent_t events[2] = {};

  // The algorithms that cuBLASLt thinks the fastest, in its order.
  void find(planned_product& p) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
            "a preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Parameters, and thirds of the qkv weight, start at multiples of 16 bytes, not of 256.
    constexpr uint32_t kAlignment = 16;
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, kAlignment);
    }
    cublasLtMatmulHeuristicResult_t results[kMostAlgorithms]{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, p.desc, p.b, p.a, p.c, p.c, preference, kMostAlgorithms, results, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return;
    for (int i = 0; i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) p.algorithms.push_back(results[i].algo);
    }
  }

  void run(const planned_product& p, const cublasLtMatmulAlgo_t& algorithm, const operands& o,
           void* workspace, stream s) const {
    if (o.bias != nullptr) set(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
    const float one = 1, beta = o.accumulate ? 1 : 0;
    check(cublasLtMatmul(handle, p.desc, &one, o.b, p.b, o.a, p.a, &beta, o.c, p.c, o.c, p.c,
                         &algorithm, workspace, kWorkspaceBytes, static_cast<cudaStream_t>(s)),
          "a product");
  }

  // Milliseconds of the faster of two runs.
  double time(const planned_product& p, const cublasLtMatmulAlgo_t& algorithm, const operands& o,
              void* workspace, stream s) const {
    const auto on = static_cast<cudaStream_t>(s);
    double least = std::numeric_limits<double>::infinity();
    for (int again = 0; again < 2; ++again) {
      check(cudaEventRecord(events[0], on), "timing");
      run(p, algorithm, o, workspace, s);
      check(cudaEventRecord(events[1], on), "timing");
      check(cudaEventSynchronize(events[1]), "timing");
      float took = 0;
      check(cudaEventElapsedTime(&took, events[0], events[1]), "timing");
      least = std::min<double>(least, took);
    }
    return least;
  }

  // What tells the result that is there from others.
  uint64_t tell(const planned_product& p, const operands& o, void* workspace, stream s) const {
    std::vector<uint64_t> parts(kDigestParts);
    const product& w = p.what;
    digest({o.c, w.m, w.n, w.c_stride, type}, static_cast<uint64_t*>(workspace), s);
    check(cudaMemcpyAsync(parts.data(), workspace, parts.size() * sizeof(uint64_t),
                          cudaMemcpyDefault, static_cast<cudaStream_t>(s)),
          "comparing");
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(s)), "comparing");
    return std::accumulate(parts.begin(), parts.end(), uint64_t{0});
  }
};

products::products(const device&, dtype type) : own_(new implementation{.type = type}) {
  check(cublasLtCreate(&own_->handle), "starting");
  for (cudaEvent_t& event : own_->events) check(cudaEventCreate(&event), "starting");
}

products::~products() {
  for (const planned_product& p : own_->planned) p.destroy();
  for (cudaEvent_t event : own_->events) cudaEventDestroy(event);
  cublasLtDestroy(own_->handle);
}

int products::plan(const product& p) {
  const bool is_float32 = own_->type == dtype::float32;
  const cudaDataType_t type = is_float32 ? CUDA_R_32F : CUDA_R_16BF;
  const auto compute = is_float32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  planned_product made{.what = p};
  check(cublasLtMatmulDescCreate(&made.desc, compute, CUDA_R_32F), "describing");
  set(made.desc, CUBLASLT_MATMUL_DESC_TRANSA, p.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(made.desc, CUBLASLT_MATMUL_DESC_TRANSB, p.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.after == epilogue::bias) {
    set(made.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    // What the address will be aligned to; the algorithm may depend on there being any.
    set(made.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<void*>(256));
    set(made.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }
  made.a = p.transposed_a ? layout(type, p.k, p.m, p.a_stride) : layout(type, p.m, p.k, p.a_stride);
  made.b = p.transposed_b ? layout(type, p.n, p.k, p.b_stride) : layout(type, p.k, p.n, p.b_stride);
  made.c = layout(type, p.m, p.n, p.c_stride);
  own_->find(made);
  if (made.algorithms.empty()) {
    made.destroy();
    throw error("cuBLASLt: no algorithm for a product of " + std::to_string(p.m) + " × " +
                std::to_string(p.n) + " × " + std::to_string(p.k));
  }
  own_->planned.push_back(std::move(made));
  return static_cast<int>(own_->planned.size()) - 1;
}

const product& products::planned(int number) const { return own_->planned[number].what; }

int64_t products::workspace_bytes() const { return kWorkspaceBytes; }

bool products::have_choice() const { return true; }

void products::choose(int number, const operands& o, void* workspace, stream s) {
  planned_product& p = own_->planned[number];
  operands written = o;
  written.accumulate = false;
  if (!std::exchange(p.is_chosen, true) && p.algorithms.size() > 1) {
    const double first = own_->time(p, p.algorithms[0], written, workspace, s);
    const uint64_t result = own_->tell(p, written, workspace, s);
    // A gain that is less than this is noise.
    double fastest = kWorthIt * first;
    size_t chosen = 0;
    for (size_t i = 1; i < p.algorithms.size(); ++i) {
      const double took = own_->time(p, p.algorithms[i], written, workspace, s);
      if (took >= fastest || own_->tell(p, written, workspace, s) != result) continue;
      fastest = took;
      chosen = i;
    }
    std::swap(p.algorithms[0], p.algorithms[chosen]);
  }
  run(number, written, workspace, s);
}

void products::run(int number, const operands& o, void* workspace, stream s) const {
  const planned_product& p = own_->planned[number];
  own_->run(p, p.algorithms[0], o, workspace, s);
}

}  // namespace gpt2
