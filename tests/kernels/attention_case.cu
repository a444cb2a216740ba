// One small call of the attention kernel against a reference in double, as a program of its own:
// the tests of planted mistakes (test_attention_mistakes.py) compile it with a kernel that they
// have changed.
#include <algorithm>
#include <random>

#include "harness.h"
#include "kernels/attention/attention_launch.cuh"

using kittens::testing::buffer;
using namespace thunderkittens;

namespace {

constexpr int kRows = 230, kKeys = 600, kHeads = 6, kHeadDim = 64;  // 12 tiles, for 4 blocks

std::vector<bf16> random_values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> values(n);
  for (bf16& value : values) value = kittens::convert<bf16>(normal(generator));
  return values;
}

// [1, length, kHeads, kHeadDim], as doubles.
struct tensor {
  std::vector<double> values;
  explicit tensor(const std::vector<bf16>& from) {
    for (const bf16 value : from) values.push_back(kittens::convert<float>(value));
  }
  double at(int row, int head, int d) const {
    return values[(static_cast<size_t>(row) * kHeads + head) * kHeadDim + d];
  }
};

// The largest difference of a row's outputs from the formula; NaN stays.
double error_of(int row, int head, const tensor& q, const tensor& k, const tensor& v,
                const tensor& o, double lse, double scale) {
  std::vector<double> p(kKeys);
  double sum = 0;
  for (int j = 0; j < kKeys; ++j) {
    double score = 0;
    for (int d = 0; d < kHeadDim; ++d) score += q.at(row, head, d) * k.at(j, head, d);
    sum += p[j] = std::exp(score * scale);
  }
  double worst = std::fabs(std::log(sum) - lse);
  for (int d = 0; d < kHeadDim; ++d) {
    double want = 0;
    for (int j = 0; j < kKeys; ++j) want += p[j] / sum * v.at(j, head, d);
    const double error = std::fabs(want - o.at(row, head, d));
    worst = error <= worst ? worst : error;
  }
  return worst;
}

}  // namespace

TEST(attention_of_a_few_tiles) {
  constexpr int64_t kRow = kHeads * kHeadDim;
  const auto qs = random_values(kRows * kRow, 1), ks = random_values(kKeys * kRow, 2),
             vs = random_values(kKeys * kRow, 3);
  const buffer<bf16> q(qs), k(ks), v(vs), o(qs.size());
  const buffer<float> lse(kHeads * kRows);
  const float scale = 0.125f;
  const attention_strides q_strides{kRows * kRow, kRow, kHeadDim};
  const attention_strides k_strides{kKeys * kRow, kRow, kHeadDim};
  launch_attention_forward<attention_forward_config<bf16, kHeadDim, false>>(
      {q.data(), k.data(), v.data(), o.data(), lse.data(), 1, kRows, kKeys, kHeads, kHeads,
       kHeadDim, q_strides, k_strides, k_strides, scale, false, dtype::bfloat16},
      nullptr);
  const tensor queries(qs), keys(ks), values(vs), outputs(o.get());
  const std::vector<float> sums = lse.get();
  double worst = 0;
  for (int head = 0; head < kHeads; ++head) {
    for (int row = 0; row < kRows; ++row) {
      const double error = error_of(row, head, queries, keys, values, outputs,
                                    sums[static_cast<size_t>(head) * kRows + row], scale);
      worst = error <= worst ? worst : error;
    }
  }
  // |o| < 1 here: half a unit in the last place of o, and as much for the rounding of p.
  CHECK_CLOSE(worst, 0.0, 2 * 0x1p-9);
}
