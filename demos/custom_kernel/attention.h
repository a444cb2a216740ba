// What binding.cpp calls of attention.cu and flash_attention_2.cu. Pointers are to bf16 on the GPU,
// [heads, length, 64] each; length is a multiple of 64.
#pragma once

#include <cuda_runtime_api.h>

cudaError_t attention(const void* q, const void* k, const void* v, void* o, int heads, int length,
                      cudaStream_t stream);
cudaError_t flash_attention_2(const void* q, const void* k, const void* v, void* o, int heads,
                              int length, cudaStream_t stream);
