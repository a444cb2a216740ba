// Dynamic shared memory, the only shared memory our kernels use. launch_config::shared_bytes sets
// its size; what is in it at the start of a block is undefined (the simulator fills it with NaNs).
//
//   uint8_t* dynamic_shared()               its first byte, aligned to 1024 bytes
//   uint32_t shared_address(const void* p)  p as an address of the shared window, as PTX takes it
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"

#if KITTENS_SIMULATED
#include "kittens/arch/sim/shared.hpp"
#else
#include "kittens/arch/ptx/shared.cuh"
#endif
