// Bytes of two words, in any order.
#include "kittens/arch/arch.cuh"
#include "record.h"

namespace {

using namespace kittens;
using namespace kittens::testing;

__global__ void permutes(const unsigned* selectors, unsigned* out) {
  out[arch::thread_id()] =
      arch::byte_permute(0xa3b2c1d0u, 0x0f1e2d3cu, selectors[arch::thread_id()]);
}

TEST(byte_permute) {
  std::vector<unsigned> selectors = {0x3210, 0x7654, 0x0123, 0x4567, 0x1404, 0x3424, 0x7070};
  for (unsigned n = 0; n < 8; ++n) selectors.push_back(n * 0x1111);
  // Bits above the four numbers are not read.
  selectors.push_back(0xffff1404u);
  const buffer<unsigned> from(selectors);
  const buffer<unsigned> to(selectors.size());
  run(permutes, {.grid = {1}, .block = {int(selectors.size())}}, from.data(), to.data());
  record("byte_permute", to.get());
}

}  // namespace
