// arch/cluster.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "sim/bulk_api.hpp"

namespace kittens::arch {

KITTENS_DEVICE int cluster_rank() { return sim::self->cluster_rank; }
KITTENS_DEVICE int cluster_blocks() { return sim::self->cluster_blocks; }

KITTENS_DEVICE void cluster_arrive(KITTENS_CALL_SITE) {
  sim::cluster_arrive(site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void cluster_wait(KITTENS_CALL_SITE) {
  sim::cluster_wait(site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void cluster_sync(KITTENS_CALL_SITE) {
  sim::cluster_arrive(site);
  sim::cluster_wait(site);
  sim::stay_on_stack();
}

}  // namespace kittens::arch
