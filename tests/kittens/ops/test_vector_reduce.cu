// ops/register/vector_reduce.cuh: sums, products, extremes and dot products, the same in every
// lane.
#include <algorithm>
#include <cmath>

#include "vectors.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kLength = 256;
enum { kSum, kProd, kMax, kMin, kSumOnto, kMaxOnto, kDot, kResults };

// out[result][lane]
template <class V>
__global__ void reduce_all(const float* in, float* out) {
  V v;
  load(v, gl<const float>::vector(in, kLength));
  float results[kResults];
  sum(results[kSum], v);
  prod(results[kProd], v);
  max(results[kMax], v);
  min(results[kMin], v);
  sum(results[kSumOnto], v, 100.0f);
  max(results[kMaxOnto], v, 100.0f);
  dot(results[kDot], v, v);
  for (int i = 0; i < kResults; ++i) out[i * 32 + arch::lane_id()] = results[i];
}

template <class V>
void check_reductions(const std::vector<float>& values) {
  const buffer<float> in(values), out(static_cast<size_t>(kResults * 32));
  run(reduce_all<V>, {.grid = {1}, .block = {32}}, in.data(), out.data());
  const std::vector<float> got = out.get();

  double want[kResults] = {0, 1, -1e30, 1e30, 100, 100, 0}, magnitude = 0;
  for (const float value : values) {
    const double x = convert<float>(convert<typename V::dtype>(value));
    magnitude += std::fabs(x);
    want[kSum] += x;
    want[kProd] *= x;
    want[kMax] = std::max(want[kMax], x);
    want[kMin] = std::min(want[kMin], x);
    want[kSumOnto] += x;
    want[kMaxOnto] = std::max(want[kMaxOnto], x);
    want[kDot] += x * x;
  }
  for (int i = 0; i < kResults; ++i) {
    // Roundings on the way of any element: one for each that its lane holds, and five over lanes. A
    // product has kLength in all.
    const double scale = i == kProd  ? std::fabs(want[i]) * 20
                         : i == kDot ? want[i]
                                     : magnitude + 100;
    for (int lane = 0; lane < 32; ++lane) {
      CHECK_CLOSE(got[i * 32 + lane], want[i], scale * (V::chunks * V::run_length + 6) * 0x1p-24);
      CHECK_EQUAL(got[i * 32 + lane], got[i * 32]);
    }
  }
}

TEST(reductions_over_every_layout) {
  const std::vector<float> values = testing::random_values(kLength, 3);
  testing::for_each_vector<kLength>([&]<class V>() { check_reductions<V>(values); });
}

TEST(extremes_in_any_lane) {
  for (const int place : {0, 1, 31, 32, 100, 255}) {
    std::vector<float> values(kLength, -1.0f);
    values[place] = 1.5f;
    check_reductions<rv<float, kLength>>(values);
    check_reductions<rv<bf16, kLength, ducks::rv_layout::runs<8>>>(values);
  }
}

}  // namespace
