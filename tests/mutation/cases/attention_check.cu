// Small calls of attention against the formula in double: several tiles a block, ragged ends,
// shared key heads, causal masks with rows that see nothing.
#include <kittens.cuh>

#include "attention.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

constexpr int64_t kHeadDim = HEAD_DIM;

struct problem {
  int64_t batch, rows, keys, heads, key_heads;
  bool causal, wants_lse;
};

struct outputs {
  std::vector<double> o, lse;
};

// Row i of one head: adds its outputs, and the logarithm of its sum.
void attend(const problem& is, int64_t b, int64_t i, int64_t h, const std::vector<double>& q,
            const std::vector<double>& k, const std::vector<double>& v, double scale, outputs& to) {
  const int64_t seen = is.causal ? std::max<int64_t>(0, i + 1 + is.keys - is.rows) : is.keys;
  const int64_t key_head = h / (is.heads / is.key_heads);
  const auto key = [&](int64_t j) { return ((b * is.keys + j) * is.key_heads + key_head); };
  const double* query = &q[((b * is.rows + i) * is.heads + h) * kHeadDim];
  double* o = &to.o[((b * is.rows + i) * is.heads + h) * kHeadDim];
  double sum = 0;
  for (int64_t j = 0; j < seen; ++j) {
    double score = 0;
    for (int d = 0; d < kHeadDim; ++d) score += query[d] * k[key(j) * kHeadDim + d];
    const double p = std::exp(score * scale);
    sum += p;
    for (int d = 0; d < kHeadDim; ++d) o[d] += p * v[key(j) * kHeadDim + d];
  }
  for (int d = 0; d < kHeadDim; ++d) o[d] = sum > 0 ? o[d] / sum : 0;
  to.lse[(b * is.heads + h) * is.rows + i] = std::log(sum);
}

void check(const problem& is) {
  const int64_t row = is.heads * kHeadDim, key_row = is.key_heads * kHeadDim;
  const auto qs = normal_values<bf16>(is.batch * is.rows * row, 1);
  const auto ks = normal_values<bf16>(is.batch * is.keys * key_row, 2);
  const auto vs = normal_values<bf16>(is.batch * is.keys * key_row, 3);
  const buffer<bf16> q(qs), k(ks), v(vs), o(qs.size());
  const buffer<float> lse(is.batch * is.heads * is.rows);
  // Twice what is usual: a few keys decide, so that none may be missing.
  const float scale = 2 / std::sqrt(float(kHeadDim));
  const attention_strides q_strides{is.rows * row, row, kHeadDim};
  const attention_strides k_strides{is.keys * key_row, key_row, kHeadDim};
  run_attention({q.data(), k.data(), v.data(), o.data(), is.wants_lse ? lse.data() : nullptr,
                 is.batch, is.rows, is.keys, is.heads, is.key_heads, kHeadDim, q_strides, k_strides,
                 k_strides, scale, is.causal, dtype::bfloat16});
  outputs want{std::vector<double>(qs.size()), std::vector<double>(lse.size())};
  const auto qd = doubles(qs), kd = doubles(ks), vd = doubles(vs);
  for (int64_t b = 0; b < is.batch; ++b) {
    for (int64_t h = 0; h < is.heads; ++h) {
      for (int64_t i = 0; i < is.rows; ++i) attend(is, b, i, h, qd, kd, vd, scale, want);
    }
  }
  // The weights round, each by a unit of itself, and so do their sums with v, below 4.
  check_all("o", o.get(), want.o, unit<bf16>(), 4 * unit<bf16>() / 2);
  // Scores reach 16 in float; their errors come in as they are.
  if (is.wants_lse) check_all("lse", lse.get(), want.lse, 0, 16 * 8 * unit<float>());
}

}  // namespace

// At both edges of what the causal mask skips: rows − 1 is a multiple of a tile's 192, and the
// first row sees 65 + 1 or 126 + 1 keys, so that a tile's last row sees 128 n + 1 keys, and a first
// one a key less than whole blocks.
TEST(many_tiles_a_block) { check({2, 230, 300, 4, 2, false, true}); }
TEST(full_with_a_last_block_of_one_key) { check({1, 65, 257, 2, 2, false, true}); }
TEST(causal_with_many_more_keys) { check({2, 200, 460, 2, 1, true, true}); }
TEST(causal_with_a_last_block_of_one_key) { check({1, 193, 258, 1, 1, true, true}); }
TEST(causal_with_a_first_block_less_one_key) { check({1, 193, 319, 1, 1, true, true}); }
TEST(causal_with_rows_that_see_nothing) { check({1, 400, 150, 2, 2, true, true}); }
TEST(one_short_tile) { check({1, 5, 7, 1, 1, false, false}); }
TEST(no_keys) { check({1, 70, 0, 2, 1, false, true}); }
TEST(causal_without_keys) { check({1, 193, 0, 1, 1, true, true}); }
