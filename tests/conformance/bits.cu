// Bits of two words, chosen by a third.
#include "kittens/arch/arch.cuh"
#include "record.h"

namespace {

using namespace kittens;
using namespace kittens::testing;

__global__ void selects(const unsigned* masks, unsigned* out) {
  const unsigned mask = masks[arch::thread_id()];
  unsigned* const mine = out + 3 * arch::thread_id();
  mine[0] = arch::select_bits(0xa3b2c1d0u, 0x0f1e2d3cu, mask);
  // Of constants alone but for one word, as kernels have it.
  mine[1] = arch::select_bits(mask, 0x43004300u, 0x000f000fu);
  mine[2] = arch::select_bits(mask >> 4, mask, 0x07f007f0u);
}

TEST(select_bits) {
  std::vector<unsigned> masks = {0, 0xffffffffu, 0x00ff00ffu, 0x12345678u, 0x80000001u};
  for (unsigned n = 0; n < 8; ++n) masks.push_back(n * 0x01234567u + 0x0fedcba9u);
  const buffer<unsigned> from(masks);
  const buffer<unsigned> to(3 * masks.size());
  run(selects, {.grid = {1}, .block = {int(masks.size())}}, from.data(), to.data());
  record("select_bits", to.get());
}

}  // namespace
