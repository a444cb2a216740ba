// arch/fence.cuh in the simulator, where copies read what is in memory when they run: a missing
// fence is seen in race mode only, and only that of shared memory.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "sim/bulk_api.hpp"

namespace kittens::arch {

KITTENS_DEVICE void fence_async_proxy() { sim::fence_async_proxy(); }

KITTENS_DEVICE void fence_async_proxy_global() {}

}  // namespace kittens::arch
