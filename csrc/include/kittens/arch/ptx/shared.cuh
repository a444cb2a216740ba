// arch/shared.cuh on the device.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

KITTENS_DEVICE uint8_t* dynamic_shared() {
  extern __shared__ __align__(1024) uint8_t kittens_dynamic_shared[];
  return kittens_dynamic_shared;
}

KITTENS_DEVICE uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace kittens::arch
