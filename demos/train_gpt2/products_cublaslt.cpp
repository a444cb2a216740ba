// Matrix products by cuBLASLt. It stores columns, so a row-major product is the transposed one
// there: cᵀ = op(b)ᵀ · op(a)ᵀ, its first factor is b, and its rows are n.
#include <cublasLt.h>

#include <string>
#include <vector>

#include "products.h"

namespace gpt2 {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what cuBLAS' manual advises for Hopper

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw error(std::string("cuBLASLt: ") + doing + ": " + cublasLtGetStatusString(status));
  }
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "describing");
}

cublasLtEpilogue_t to_cublas(epilogue e) {
  switch (e) {
    case epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case epilogue::bias_gelu: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case epilogue::dgelu: return CUBLASLT_EPILOGUE_DGELU;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
  }
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
  cublasLtMatmulAlgo_t algorithm{};

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

  // The algorithm that cuBLASLt thinks the fastest; false: it has none.
  bool choose(planned_product& p) const {
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
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, p.desc, p.b, p.a, p.c, p.c,
                                                                 preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    p.algorithm = result.algo;
    return status == CUBLAS_STATUS_SUCCESS && found > 0;
  }
};

products::products(const device&, dtype type) : own_(new implementation{.type = type}) {
  check(cublasLtCreate(&own_->handle), "starting");
}

products::~products() {
  for (const planned_product& p : own_->planned) p.destroy();
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
  set(made.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, to_cublas(p.after));
  // What the addresses will be aligned to; the algorithm may depend on there being any.
  void* const some = reinterpret_cast<void*>(256);
  if (p.after == epilogue::bias || p.after == epilogue::bias_gelu) {
    set(made.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, some);
    set(made.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }
  if (p.after == epilogue::bias_gelu || p.after == epilogue::dgelu) {
    set(made.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, some);
    set(made.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.c_stride);
  }
  made.a = p.transposed_a ? layout(type, p.k, p.m, p.a_stride) : layout(type, p.m, p.k, p.a_stride);
  made.b = p.transposed_b ? layout(type, p.n, p.k, p.b_stride) : layout(type, p.k, p.n, p.b_stride);
  made.c = layout(type, p.m, p.n, p.c_stride);
  if (!own_->choose(made)) {
    made.destroy();
    if (p.after == epilogue::bias_gelu || p.after == epilogue::dgelu) return kNone;
    throw error("cuBLASLt: no algorithm for a product of " + std::to_string(p.m) + " × " +
                std::to_string(p.n) + " × " + std::to_string(p.k));
  }
  own_->planned.push_back(made);
  return static_cast<int>(own_->planned.size()) - 1;
}

const product& products::planned(int number) const { return own_->planned[number].what; }

int64_t products::workspace_bytes() const { return kWorkspaceBytes; }

void products::run(int number, const operands& o, void* workspace, stream s) const {
  const planned_product& p = own_->planned[number];
  if (o.bias != nullptr) set(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  if (o.extra != nullptr) set(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.extra);
  const float one = 1, beta = o.accumulate ? 1 : 0;
  check(cublasLtMatmul(own_->handle, p.desc, &one, o.b, p.b, o.a, p.a, &beta, o.c, p.c, o.c, p.c,
                       &p.algorithm, workspace, kWorkspaceBytes, static_cast<cudaStream_t>(s)),
        "a product");
}

}  // namespace gpt2
