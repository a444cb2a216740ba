// Fences. What they order in the simulator, where threads take turns, only race mode can see.
#include <atomic>

#include "sim/bulk_api.hpp"
#include "sim/race/race.hpp"

namespace kittens::sim {

void fence_memory() {
  if (self->race != nullptr) self->race->fence();
  std::atomic_thread_fence(std::memory_order_seq_cst);  // blocks run on several cores
}

void fence_async_proxy() {
  if (self->race != nullptr) self->race->fence_proxy();
}

}  // namespace kittens::sim
