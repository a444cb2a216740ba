// Both bf16 of a word: a·b + c, rounded once, by tests/kittens/arch/pair_cases.h.
#include "arch/pair_cases.h"
#include "record.h"

namespace {

using namespace kittens;
using namespace kittens::testing;

TEST(any_words) {
  std::mt19937 random(7);
  std::vector<uint32_t> words[3];
  for (auto& some : words) {
    for (int i = 0; i < 600; ++i) some.push_back(static_cast<uint32_t>(random()));
  }
  record("fma_bf16_pairs.any", fma_pairs(words[0], words[1], words[2]));
}

// Sums whose parts are of like size, where rounding shows.
TEST(sizes_that_meet) {
  std::mt19937 random(8);
  const auto word = [&](uint32_t exponents) {
    const uint32_t low = 0x3f80 - exponents / 2 * 0x80 + random() % (exponents * 0x80);
    const uint32_t high = 0x3f80 - exponents / 2 * 0x80 + random() % (exponents * 0x80);
    return low | high << 16 | (static_cast<uint32_t>(random()) & 0x80008000u);
  };
  std::vector<uint32_t> words[3];
  for (auto& some : words) {
    for (int i = 0; i < 600; ++i) some.push_back(word(&some == &words[2] ? 16 : 4));
  }
  record("fma_bf16_pairs.meet", fma_pairs(words[0], words[1], words[2]));
}

// Zeros, subnormal numbers, the largest, infinities and NaN, each with each.
TEST(ends) {
  const uint32_t halves[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x3f80, 0xbf81,
                             0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7fff, 0xffc1};
  std::vector<uint32_t> a, b, c;
  for (const uint32_t x : halves) {
    for (const uint32_t y : halves) {
      for (const uint32_t z : halves) {
        a.push_back(x | y << 16);
        b.push_back(y | z << 16);
        c.push_back(z | x << 16);
      }
    }
  }
  record("fma_bf16_pairs.ends", fma_pairs(a, b, c));
}

}  // namespace
