// Which lines the L2 evicts first or last, for instructions that take a policy (.L2::cache_hint).
// PTX ISA, Data Movement and Conversion Instructions: createpolicy.
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {
namespace detail {

KITTENS_DEVICE uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

KITTENS_DEVICE uint64_t evict_last_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

}  // namespace detail
}  // namespace kittens::arch
