// What binding.cpp calls of the .cu files. Pointers are to bf16 on the GPU, without gaps. What
// cannot be launched is an error that is returned, or thrown (kittens::host::error).
#pragma once

#include <cuda_runtime_api.h>

struct attention_tensors {
  const void *q, *k, *v;  // [heads, length, head dimension], as o
  void* o;
  int heads, length;
};

// Head dimension 64, and a length that is a multiple of 64.
cudaError_t attention(const attention_tensors& x, cudaStream_t stream);
cudaError_t flash_attention_2(const attention_tensors& x, cudaStream_t stream);
void load_store_compute_finish(const attention_tensors& x, cudaStream_t stream);

// Head dimension 64 or 128, any length; causal: a row sees no key behind its own.
void flash_attention_3(const attention_tensors& x, int head_dim, bool causal, cudaStream_t stream);

// o[t] = Σ_{s ≤ t} (q[t] · k[s]) v[s]. Head dimension 64, any length.
void linear_attention(const attention_tensors& x, cudaStream_t stream);

// c = a bᵀ for a [m, k], b [n, k] and c [m, n]; n and k are multiples of 8.
void gemm(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream);
