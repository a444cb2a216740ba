// arch/shared.cuh in the simulator.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"
#include "sim/api.hpp"

namespace kittens::arch {

KITTENS_DEVICE uint8_t* dynamic_shared() { return sim::self->shared; }

KITTENS_DEVICE uint32_t shared_address(const void* p, KITTENS_CALL_SITE) {
  return sim::shared_address(p, site);
}

}  // namespace kittens::arch
