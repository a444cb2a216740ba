// The seam: one hardware instruction per function, with a device and a simulator twin of each.
// Only this directory and kittens/host know that there are two worlds.
#pragma once

#include "kittens/arch/async_copy.cuh"
#include "kittens/arch/atomic.cuh"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/keywords.cuh"
#include "kittens/arch/math.cuh"
#include "kittens/arch/memory.cuh"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/shuffle.cuh"
#include "kittens/arch/thread.cuh"
