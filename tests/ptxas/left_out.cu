// A store that a compiler rightly leaves out, and one that it cannot: tests/ptxas/test_accesses.py
// must see the difference.
#include <kittens.cuh>

using namespace kittens;

__global__ void left_out(float* out, unsigned thread) {
  float* const words = reinterpret_cast<float*>(arch::dynamic_shared());
  arch::store_shared(&words[thread % 2], 1.0f);
  if (thread % 2 > 1) {
    arch::store_shared(&words[1], 2.0f);
  }
  arch::sync_block();
  *out = words[arch::thread_id()];
}
