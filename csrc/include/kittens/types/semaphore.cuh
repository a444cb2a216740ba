// semaphore: a barrier in shared memory on which threads wait for arrivals and for bytes that TMA
// brings. ops/semaphore.cuh says what one does with it.
#pragma once

#include "kittens/arch/mbarrier.cuh"

namespace kittens {

struct semaphore {
  arch::mbarrier barrier;
};

}  // namespace kittens
