// Fences between the two ways to memory: ordinary loads and stores, and the asynchronous proxy, by
// which bulk copies and wgmma read and write. Both ways need one: a thread that wrote shared memory
// fences, then a barrier lets others start a copy or a product that reads it; and a thread that
// read it fences, then a barrier lets others start a copy that overwrites it. No barrier does by
// itself: it orders ordinary accesses with ordinary ones.
//
//   fence_async_proxy()          this thread's accesses to shared memory; nothing below sm_90,
//                                which has no such proxy
//   fence_async_proxy_global()   … to global memory; likewise
//
// (fence_block and fence_device are in arch/atomic.cuh.)
#pragma once

#include "kittens/arch/keywords.cuh"

#if KITTENS_SIMULATED
#include "kittens/arch/sim/fence.hpp"
#else
#include "kittens/arch/ptx/fence.cuh"
#endif
