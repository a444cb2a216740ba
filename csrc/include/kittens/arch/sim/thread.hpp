// arch/thread.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "sim/bulk_api.hpp"

namespace kittens::arch {

KITTENS_DEVICE int thread_id() { return sim::self->thread; }
KITTENS_DEVICE int lane_id() { return sim::self->thread % 32; }
KITTENS_DEVICE int warp_id() { return sim::self->thread / 32; }
KITTENS_DEVICE int block_threads() { return sim::self->block_threads; }
KITTENS_DEVICE int block_x() { return sim::self->block.x; }
KITTENS_DEVICE int block_y() { return sim::self->block.y; }
KITTENS_DEVICE int block_z() { return sim::self->block.z; }
KITTENS_DEVICE int grid_x() { return sim::self->grid.x; }
KITTENS_DEVICE int grid_y() { return sim::self->grid.y; }
KITTENS_DEVICE int grid_z() { return sim::self->grid.z; }

// A fixed lane of each warp, not always 0: it depends on the policy.
KITTENS_DEVICE bool elect_one(KITTENS_CALL_SITE) { return sim::elect_one(site); }

}  // namespace kittens::arch
