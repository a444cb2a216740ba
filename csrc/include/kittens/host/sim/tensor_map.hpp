// host/tensor_map.cuh in the simulator.
#pragma once

#include <algorithm>

#include "kittens/arch/tma.cuh"
#include "kittens/host/tensor_map_request.h"

namespace kittens::host {

inline arch::tensor_map encode_tensor_map(const tensor_map_request& r) {
  if (!is_encodable(r)) throw error("tensor map: " + why_not_encodable(r));
  arch::tensor_map map;
  map.valid = map.kValid;
  map.kind = r.kind;
  map.data = static_cast<uint8_t*>(const_cast<void*>(r.data));
  std::copy_n(r.extent, r.rank, map.extent);
  std::copy_n(r.box, r.rank, map.box);
  for (int d = 1; d < r.rank; ++d) map.stride_bytes[d - 1] = valid_stride(r, d);
  map.rank = static_cast<uint8_t>(r.rank);
  map.swizzle_bytes = static_cast<uint8_t>(r.swizzle_bytes);
  return map;
}

// delete's to give back, for there is no cudaFree.
inline arch::tensor_map* tensor_map_on_device(const arch::tensor_map& map) {
  auto* const copy = new arch::tensor_map(map);
  copy->in_global_memory = true;
  return copy;
}

}  // namespace kittens::host
