// The linear attention of demos/custom_kernel against float64.
#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

constexpr int D = 64, kChunk = 64;

// Rounded to bf16, by at most 2⁻⁸ of themselves: the weights of a row's own chunk, the state before
// it, and o. Floats add up at most n + 64 numbers, each time within 2⁻²³ of what they would be
// without signs.
void check(int heads, int n) {
  const auto q = random_elements<bf16>(heads * n * D, 1),
             k = random_elements<bf16>(heads * n * D, 2),
             v = random_elements<bf16>(heads * n * D, 3);
  const buffer<bf16> q_buffer(q), k_buffer(k), v_buffer(v), o_buffer(q.size());
  linear_attention({q_buffer.data(), k_buffer.data(), v_buffer.data(), o_buffer.data(), heads, n},
                   nullptr);
  const std::vector<bf16> o = o_buffer.get();
  const auto at = [&](const std::vector<bf16>& x, int row, int d) {
    return double{convert<float>(x[size_t(row) * D + d])};
  };
  std::vector<double> state, size;  // Σ k v, and Σ |k v|, of the chunks before
  for (int row = 0; row < heads * n; ++row) {
    const int token = row % n, first = row - token % kChunk;
    if (token == 0) state.assign(D * D, 0.0), size = state;
    for (int e = 0; e < D; ++e) {
      double want = 0.0, rounded = 0.0, total = 0.0;
      for (int d = 0; d < D; ++d) {
        want += at(q, row, d) * state[d * D + e];
        rounded += std::fabs(at(q, row, d) * state[d * D + e]);
        total += std::fabs(at(q, row, d)) * size[d * D + e];
      }
      for (int s = first; s <= row; ++s) {
        double weight = 0.0;
        for (int d = 0; d < D; ++d) weight += at(q, row, d) * at(k, s, d);
        want += weight * at(v, s, e);
        rounded += std::fabs(weight * at(v, s, e));
        total += std::fabs(weight * at(v, s, e));
      }
      const double bound = 0x1p-8 * (rounded + std::fabs(want)) + (n + 64) * 0x1p-23 * total;
      CHECK_CLOSE(at(o, row, e), want, bound + 0x1p-16 * rounded);
    }
    if (token % kChunk != kChunk - 1) continue;
    for (int s = first; s <= row; ++s) {
      for (int i = 0; i < D * D; ++i) {
        state[i] += at(k, s, i / D) * at(v, s, i % D);
        size[i] += std::fabs(at(k, s, i / D) * at(v, s, i % D));
      }
    }
  }
}

}  // namespace

TEST(few_tokens) { check(1, 40); }
TEST(the_ring_goes_round) { check(1, 400); }
TEST(several_heads) { check(3, 192); }
