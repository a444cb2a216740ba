// What the checks of the kernels in this folder share. Such a kernel is CUDA as anyone writes it;
// for the simulator, test_classic.py puts the seam's words in the place of CUDA's own, and a launch
// comes here.
#pragma once

#include "launch_classic.h"
#include "vectors.h"

namespace kittens::testing {

template <class T>
std::vector<T> random_elements(int n, unsigned seed) {
  std::vector<T> values;
  for (const float value : random_values(n, seed)) values.push_back(convert<T>(value));
  return values;
}

// Checks o of attention over [heads, n, D] against float64. The weights and the output are rounded
// to bf16 once each, by at most 2⁻⁸ of Σ weight · |v|; a twentieth of that is left for float.
template <class F>
void check_attention(int heads, int n, F attention, int D = 64, bool causal = false) {
  const auto q = random_elements<bf16>(heads * n * D, 1),
             k = random_elements<bf16>(heads * n * D, 2),
             v = random_elements<bf16>(heads * n * D, 3);
  const buffer<bf16> q_buffer(q), k_buffer(k), v_buffer(v), o_buffer(q.size());
  attention(q_buffer.data(), k_buffer.data(), v_buffer.data(), o_buffer.data(), heads, n);
  const std::vector<bf16> o = o_buffer.get();
  const auto at = [&](const std::vector<bf16>& x, int row, int d) {
    return double{convert<float>(x[size_t(row) * D + d])};
  };
  for (int row = 0; row < heads * n; ++row) {
    const int first_key = row / n * n, keys = causal ? row % n + 1 : n;
    std::vector<double> weights(keys);
    double total = 0.0;
    for (int j = 0; j < keys; ++j) {
      double score = 0.0;
      for (int d = 0; d < D; ++d) score += at(q, row, d) * at(k, first_key + j, d);
      weights[j] = std::exp(score / std::sqrt(double(D)));
      total += weights[j];
    }
    for (int d = 0; d < D; ++d) {
      double want = 0.0, size = 0.0;
      for (int j = 0; j < keys; ++j) {
        want += weights[j] / total * at(v, first_key + j, d);
        size += weights[j] / total * std::fabs(at(v, first_key + j, d));
      }
      CHECK_CLOSE(at(o, row, d), want, 1.05 * 0x1p-7 * size);
    }
  }
}

}  // namespace kittens::testing
