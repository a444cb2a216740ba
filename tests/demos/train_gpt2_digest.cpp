// What tells matrices apart, for tests/demos/test_train_gpt2_ranks.py: a digest a line, of a
// matrix, of it beside other padding, with two rows exchanged, with two elements exchanged that are
// 8 apart, with one bit of the last element changed, and of zeros.
#include <cinttypes>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels.h"
#include "memory.h"

using namespace gpt2;

int main() {
  constexpr int64_t kRows = 37, kWidth = 48, kStride = 56;
  std::vector<uint16_t> x(kRows * kStride);
  for (size_t i = 0; i < x.size(); ++i) x[i] = uint16_t(i * 40503u >> 3);
  queue q(device_of(0));
  std::vector<uint64_t> parts(kDigestParts);
  const auto show = [&] {
    digest({x.data(), kRows, kWidth, kStride, dtype::bfloat16}, parts.data(), q.handle());
    std::printf("%" PRIu64 "\n", std::accumulate(parts.begin(), parts.end(), uint64_t{0}));
  };
  show();
  x[kWidth] ^= 1;
  show();
  std::swap_ranges(x.begin(), x.begin() + kWidth, x.begin() + kStride);
  show();
  std::swap_ranges(x.begin(), x.begin() + kWidth, x.begin() + kStride);
  std::swap(x[0], x[8]);
  show();
  std::swap(x[0], x[8]);
  x[(kRows - 1) * kStride + kWidth - 1] ^= 0x8000;
  show();
  x.assign(x.size(), 0);
  show();
  return 0;
}
