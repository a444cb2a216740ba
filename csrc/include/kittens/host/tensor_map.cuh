// Tensor maps: what the copy engine (arch/tma.cuh) is told about a tensor, made on the host.
//
//   arch::tensor_map map = encode_tensor_map({.data = x, .kind = dtype::bfloat16, .rank = 2,
//                                             .extent = {cols, rows}, .stride_bytes = {2 * cols},
//                                             .box = {64, 128}, .swizzle_bytes = 128});
//   arch::tensor_map* p = tensor_map_on_device(map);
//
// tensor_map_on_device: a copy in global memory, for kernels that take a pointer, of which a block
// uses it behind arch::fence_tensor_map alone; cudaFree's to give back. dtype_of<T>: the host's
// name of float, __half or __nv_bfloat16.
//
// Throws kittens::host::error, which says what is wrong, when the hardware cannot take it. Needs no
// library but CUDA's runtime, through which it finds the driver's function.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/tma.cuh"
#include "kittens/host/tensor_map_request.h"

namespace kittens::host {

template <class T>
inline constexpr dtype dtype_of = [] {
  static_assert(sizeof(T) == 0, "dtype_of knows float, __half and __nv_bfloat16");
  return dtype{};
}();
template <>
inline constexpr dtype dtype_of<float> = dtype::float32;
template <>
inline constexpr dtype dtype_of<__half> = dtype::float16;
template <>
inline constexpr dtype dtype_of<__nv_bfloat16> = dtype::bfloat16;

}  // namespace kittens::host

#if KITTENS_SIMULATED
#include "kittens/host/sim/tensor_map.hpp"
#else
#include "kittens/host/cuda/tensor_map.cuh"
#endif
