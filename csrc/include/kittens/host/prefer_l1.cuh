// How a multiprocessor divides the memory that is both its L1 cache and its blocks' shared memory.
//
//   prefer_l1<kernel>();   before the kernel's launches: as much cache as there can be
//
// For a kernel that streams, with next to no shared memory, between kernels with much: left to
// itself the driver may keep the division of those, and what is loaded goes through the little that
// is left. Of attention's backward on an H200 the kernels before the products take up to 12 % less
// time so. Not for one whose blocks need some: layer norms took 1.5 times as long (both:
// benchmarks/attention.md).
#pragma once

#include "kittens/arch/keywords.cuh"

#if KITTENS_SIMULATED
#include "kittens/host/sim/prefer_l1.hpp"
#else
#include "kittens/host/cuda/prefer_l1.cuh"
#endif
