// host/tensor_map.cuh on the device.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "kittens/arch/tma.cuh"
#include "kittens/host/tensor_map_request.h"

namespace kittens::host {
namespace detail {

using tensor_map_encoder = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found through the runtime: libcuda is not there at link time, and maybe
// not at load time.
inline tensor_map_encoder find_tensor_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kFirstVersion = 12000;  // of CUDA, with this function
  const cudaError_t status = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &function, kFirstVersion, cudaEnableDefault, &result);
#else
  const cudaError_t status =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
  if (status != cudaSuccess || function == nullptr) {
    cudaGetLastError();  // ours is reported here; the next launch shall not find it
    throw error("tensor map: the driver has no cuTensorMapEncodeTiled (it came with CUDA 12.0)");
  }
  return reinterpret_cast<tensor_map_encoder>(function);
}

// The driver's functions take the thread's context, which the runtime's make current at a thread's
// first call: a thread of autograd's may not have made one yet.
inline void make_context_current() {
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaSetDevice(device);  // initialises it since CUDA 12.0
  if (status == cudaSuccess) return;
  cudaGetLastError();  // ours is reported here; the next launch shall not find it
  throw error(std::string("tensor map: no context: ") + cudaGetErrorString(status));
}

constexpr CUtensorMapDataType to_cuda(dtype kind) {
  switch (kind) {
    case dtype::float32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case dtype::float16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
}

constexpr CUtensorMapSwizzle to_cuda_swizzle(int bytes) {
  switch (bytes) {
    case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    default: return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

}  // namespace detail

inline arch::tensor_map encode_tensor_map(const tensor_map_request& r) {
  static const detail::tensor_map_encoder encode = detail::find_tensor_map_encoder();
  if (!is_encodable(r)) throw error("tensor map: " + why_not_encodable(r));
  constexpr int kMaxRank = tensor_map_request::kMaxRank;
  cuuint64_t extent[kMaxRank] = {}, stride[kMaxRank] = {};
  cuuint32_t box[kMaxRank] = {}, every_element[kMaxRank] = {};
  for (int d = 0; d < r.rank; ++d) {
    extent[d] = static_cast<cuuint64_t>(r.extent[d]);
    box[d] = static_cast<cuuint32_t>(r.box[d]);
    every_element[d] = 1;
    if (d > 0) stride[d - 1] = static_cast<cuuint64_t>(valid_stride(r, d));
  }
  arch::tensor_map map;
  const auto encoded = [&] {
    return encode(&map, detail::to_cuda(r.kind), static_cast<cuuint32_t>(r.rank),
                  const_cast<void*>(r.data), extent, stride, box, every_element,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, detail::to_cuda_swizzle(r.swizzle_bytes),
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = encoded();
  if (status == CUDA_ERROR_INVALID_CONTEXT) {
    detail::make_context_current();
    status = encoded();
  }
  if (status != CUDA_SUCCESS) {
    throw error("tensor map: cuTensorMapEncodeTiled fails with error " + std::to_string(status));
  }
  return map;
}

inline arch::tensor_map* tensor_map_on_device(const arch::tensor_map& map) {
  void* copy = nullptr;
  cudaError_t status = cudaMalloc(&copy, sizeof(map));
  if (status == cudaSuccess) status = cudaMemcpy(copy, &map, sizeof(map), cudaMemcpyHostToDevice);
  if (status != cudaSuccess) {
    cudaGetLastError();  // ours is reported here; the next launch shall not find it
    cudaFree(copy);
    throw error(std::string("tensor map: no copy on the device: ") + cudaGetErrorString(status));
  }
  return static_cast<arch::tensor_map*>(copy);
}

}  // namespace kittens::host
