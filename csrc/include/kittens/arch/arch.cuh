// The seam: one hardware instruction per function, with a device and a simulator twin of each.
// Only this directory and kittens/host know that there are two worlds.
#pragma once

#include "kittens/arch/async_copy.cuh"
#include "kittens/arch/atomic.cuh"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/cluster.cuh"
#include "kittens/arch/cluster_memory.cuh"
#include "kittens/arch/fence.cuh"
#include "kittens/arch/grid.cuh"
#include "kittens/arch/keywords.cuh"
#include "kittens/arch/math.cuh"
#include "kittens/arch/matrix.cuh"
#include "kittens/arch/mbarrier.cuh"
#include "kittens/arch/memory.cuh"
#include "kittens/arch/mma.cuh"
#include "kittens/arch/occupancy.cuh"
#include "kittens/arch/registers.cuh"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/shuffle.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/arch/tma.cuh"
#include "kittens/arch/wgmma.cuh"
