// ops/random.cuh: the generator's published answers, and the choice of a word.
#include <kittens.cuh>
#include <kittens/ops/random.cuh>

#include "harness.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

__global__ void numbers(uint64_t seed, four_words counter, uint32_t* out) {
  const four_words four = philox4x32(seed, counter);
  if (laneid() < 8) out[laneid()] = four.at(int64_t{laneid()} + (int64_t{1} << 33));
}

void check(uint64_t seed, const four_words& counter, const std::vector<uint32_t>& want) {
  buffer<uint32_t> out(8);
  run(numbers, {.grid = {1}, .block = {32}}, seed, counter, out.data());
  const std::vector<uint32_t> got = out.get();
  for (int i = 0; i < 8; ++i) CHECK_EQUAL(got[i], want[i % 4]);
}

}  // namespace

// Of Random123's file of known answers, which comes with the paper: philox4x32, 7 rounds.
TEST(known_answers) {
  check(0, {}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  check(~uint64_t{0}, {{~0u, ~0u, ~0u, ~0u}}, {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  check(0x299f31d0a4093822, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
        {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}
