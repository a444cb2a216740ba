// Exchange between the 32 lanes of a warp. All lanes of the warp call, from the same place.
// T is any plain type of 2, 4 or 8 bytes.
//
//   T shuffle(v, lane)          v of lane `lane` % 32
//   T shuffle_xor(v, mask)      v of lane lane_id() ^ mask, mask < 32
//   T shuffle_down(v, delta)    v of lane lane_id() + delta; own v past the end of the warp
//   T shuffle_up(v, delta)      v of lane lane_id() − delta; own v before its start
//   bool vote_any(p)            whether p holds for some lane
//   bool vote_all(p)            whether p holds for each lane
//   unsigned ballot(p)          bit i: p of lane i
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/thread.cuh"

namespace kittens::arch {

// (Not is_trivially_copyable: CUDA's own __nv_bfloat162 is not, on paper.)
template <class T>
concept shufflable =
    std::is_trivially_destructible_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);

}  // namespace kittens::arch

#if KITTENS_SIMULATED
#include "kittens/arch/sim/shuffle.hpp"
#else
#include "kittens/arch/ptx/shuffle.cuh"
#endif
