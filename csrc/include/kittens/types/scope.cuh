// Which lane, warp and warpgroup of its block the running thread is.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/shuffle.cuh"
#include "kittens/arch/thread.cuh"

namespace kittens {

inline constexpr int kWarpgroupWarps = 4;

namespace detail {

// A number that all lanes of the warp have in common, so that the compiler knows it too, and keeps
// what follows from it in uniform registers. (It cannot tell from thread_id() / 128: addresses of
// barriers and operands that depend on it would move there one by one, two R2UR for each wgmma.)
// All lanes call.
KITTENS_DEVICE int uniform(int value) { return arch::shuffle(value, 0); }

}  // namespace detail

KITTENS_DEVICE int laneid() { return arch::lane_id(); }
KITTENS_DEVICE int warpid() { return arch::warp_id(); }

// Whole warps call: at the start of a kernel, to choose their role.
KITTENS_DEVICE int warpgroupid() { return detail::uniform(arch::warp_id() / kWarpgroupWarps); }

}  // namespace kittens
