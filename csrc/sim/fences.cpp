// What orders memory. What fences order in the simulator, where threads take turns, only race mode
// can see; and kernels run one after the other there, so it is checked that a thread would wait.
#include <atomic>

#include "sim/block.hpp"
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

void wait_prerequisites() { block::running().threads().current().view.is_early = false; }

void launch_dependents() {
  if (self->race != nullptr && self->is_early) self->race->in.note_early_launch();
}

bool is_constant(const void* p, int64_t bytes) {
  const auto* const first = static_cast<const uint8_t*>(p);
  for (const host::memory_range& range : self->constant) {
    const int64_t offset = first - static_cast<const uint8_t*>(range.data);
    if (offset >= 0 && offset + bytes <= range.bytes) return true;
  }
  return false;
}

void check_early(const char* name, const void* p, int64_t bytes, bool writes, call_site site) {
  if (is_shared(p) || (!writes && is_constant(p, bytes))) return;
  report_early(name, site);
}

void report_early(const char* name, call_site site) {
  block::running().fail("PDL", site,
                        "%s by thread %d, which has not called wait_prerequisites: kernels before "
                        "this one may still write there or read",
                        name, self->thread);
}

}  // namespace kittens::sim
