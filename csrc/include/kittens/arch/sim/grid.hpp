// arch/grid.cuh in the simulator, where a launch has ended before the next begins. That a thread
// waits before it touches global memory, or ends, is checked; what the launch was promised to be
// constant it may read before.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "sim/api.hpp"

namespace kittens::arch {

KITTENS_DEVICE void wait_prerequisites() { sim::wait_prerequisites(); }

KITTENS_DEVICE void launch_dependents() { sim::launch_dependents(); }

}  // namespace kittens::arch
