// arch/barrier.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/thread.cuh"
#include "sim/api.hpp"

namespace kittens::arch {

KITTENS_DEVICE void sync_block(KITTENS_CALL_SITE) {
  sim::sync_block(site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void sync_warp(unsigned mask = kAllLanes, KITTENS_CALL_SITE) {
  sim::sync_warp(mask, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void named_barrier_sync(int id, int threads, KITTENS_CALL_SITE) {
  sim::named_barrier_sync(id, threads, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void named_barrier_arrive(int id, int threads, KITTENS_CALL_SITE) {
  sim::named_barrier_arrive(id, threads, site);
  sim::stay_on_stack();
}

}  // namespace kittens::arch
