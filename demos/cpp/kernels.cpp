// layer_norm with its gradient, attention and cross entropy, from C++ without Python and torch.
//
//   make cpp
//
// Each op is three steps: a problem (sizes, strides, dtypes), its plan for a device, and a launch
// with the addresses of the tensors. Every result is checked against a plain loop in double.
#include <bit>
#include <cmath>
#include <cstdio>
#include <random>

#include "buffer.h"
#include "kittens/host/library.h"
#include "thunderkittens/kernels/attention.h"
#include "thunderkittens/kernels/cross_entropy.h"
#include "thunderkittens/kernels/norm.h"

namespace tk = thunderkittens;
using floats = std::vector<float>;

// A number of 16 bits: the upper half of a float.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float x) {  // rounded to the nearest, ties to even
    const uint32_t word = std::bit_cast<uint32_t>(x);
    bits = static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

floats random_numbers(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  floats values(count);
  for (float& x : values) x = normal(generator);
  return values;
}

bool failed = false;

// Prints the largest error, and remembers whether it is above what roundings explain.
template <class T>
void check(const char* what, const std::vector<T>& got, const std::vector<double>& want,
           double bound) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(double(float(got[i])) - want[i]);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  std::printf("%-24s largest error %.1e, allowed %.1e\n", what, worst, bound);
  failed |= !(worst <= bound);
}

void layer_norm(const tk::device& device) {
  constexpr int64_t kRows = 300, kWidth = 512;
  const floats x = random_numbers(kRows * kWidth, 1), weight = random_numbers(kWidth, 2);
  const floats dy = random_numbers(kRows * kWidth, 3);
  const buffer<float> x_in(device, x), weight_in(device, weight), dy_in(device, dy);
  const buffer<float> y(device, x.size()), dx(device, x.size()), dweight(device, kWidth);
  const buffer<float> mean(device, kRows), rstd(device, kRows);

  const auto forward = tk::plan(tk::norm_forward_problem{.op = tk::norm_op::layer_norm,
                                                         .rows = kRows,
                                                         .width = kWidth,
                                                         .x_rows = {kWidth},
                                                         .type = tk::dtype::float32},
                                device);
  tk::launch(forward,
             {.x = x_in.data(),
              .weight = weight_in.data(),
              .y = y.data(),
              .mean = mean.data(),
              .rstd = rstd.data()},
             {}, nullptr);
  const auto backward = tk::plan(tk::norm_backward_problem{.op = tk::norm_op::layer_norm,
                                                           .rows = kRows,
                                                           .width = kWidth,
                                                           .dy_rows = {kWidth},
                                                           .x_rows = {kWidth},
                                                           .type = tk::dtype::float32},
                                 device);
  const buffer<char> memory(device, backward.workspace.bytes);
  tk::launch(backward,
             {.dy = dy_in.data(),
              .x = x_in.data(),
              .weight = weight_in.data(),
              .mean = mean.data(),
              .rstd = rstd.data(),
              .dx = dx.data(),
              .dweight = dweight.data()},
             {.memory = memory.data()}, nullptr);

  std::vector<double> want(x.size()), want_dx(x.size()), want_dweight(kWidth);
  for (int64_t r = 0; r < kRows; ++r) {
    const float *row = &x[r * kWidth], *upper = &dy[r * kWidth];
    double sum = 0, squares = 0, of_g = 0, of_gx = 0;
    for (int64_t j = 0; j < kWidth; ++j) sum += row[j];
    for (int64_t j = 0; j < kWidth; ++j) squares += std::pow(row[j] - sum / kWidth, 2);
    const double factor = 1 / std::sqrt(squares / kWidth + 1e-5);
    const auto normal = [&](int64_t j) { return (row[j] - sum / kWidth) * factor; };
    for (int64_t j = 0; j < kWidth; ++j) {
      const double g = double(upper[j]) * weight[j];
      of_g += g / kWidth;
      of_gx += g * normal(j) / kWidth;
      want[r * kWidth + j] = normal(j) * weight[j];
      want_dweight[j] += upper[j] * normal(j);
    }
    for (int64_t j = 0; j < kWidth; ++j) {
      const double g = double(upper[j]) * weight[j];
      want_dx[r * kWidth + j] = factor * (g - of_g - normal(j) * of_gx);
    }
  }
  check("layer_norm y", y.values(), want, 2e-5);
  check("layer_norm dx", dx.values(), want_dx, 2e-5);
  check("layer_norm dweight", dweight.values(), want_dweight, 2e-4);
}

void attention(const tk::device& device) {
  constexpr int64_t kRows = 200, kHeads = 2, kDim = 64, kStep = kHeads * kDim;
  std::vector<bfloat16> q, k, v;
  for (const float x : random_numbers(kRows * kStep, 4)) q.emplace_back(x);
  for (const float x : random_numbers(kRows * kStep, 5)) k.emplace_back(x);
  for (const float x : random_numbers(kRows * kStep, 6)) v.emplace_back(x);
  const buffer<bfloat16> q_in(device, q), k_in(device, k), v_in(device, v), o(device, q.size());
  const buffer<int> counter(device, 1);  // zeroed: of the dynamic tile scheduler
  const double scale = 1 / std::sqrt(double(kDim));
  const tk::attention_strides strides{kRows * kStep, kStep, kDim};
  const auto forward = tk::plan(tk::attention_forward_problem{.batch = 1,
                                                              .rows = kRows,
                                                              .keys = kRows,
                                                              .heads = kHeads,
                                                              .key_heads = kHeads,
                                                              .head_dim = kDim,
                                                              .value_dim = kDim,
                                                              .q_strides = strides,
                                                              .k_strides = strides,
                                                              .v_strides = strides,
                                                              .scale = scale,
                                                              .right = 0,
                                                              .type = tk::dtype::bfloat16},
                                device);
  tk::launch(forward, {.q = q_in.data(), .k = k_in.data(), .v = v_in.data(), .o = o.data()},
             {.counters = counter.data()}, nullptr);

  std::vector<double> want(q.size());
  for (int64_t h = 0; h < kHeads; ++h) {
    const auto at = [h](const std::vector<bfloat16>& t, int64_t row, int64_t d) {
      return double(float(t[row * kStep + h * kDim + d]));
    };
    for (int64_t i = 0; i < kRows; ++i) {
      double total = 0;
      std::vector<double> p(i + 1);
      for (int64_t j = 0; j <= i; ++j) {
        for (int64_t d = 0; d < kDim; ++d) p[j] += scale * at(q, i, d) * at(k, j, d);
        total += p[j] = std::exp(p[j]);
      }
      for (int64_t j = 0; j <= i; ++j) {
        for (int64_t d = 0; d < kDim; ++d) {
          want[i * kStep + h * kDim + d] += p[j] / total * at(v, j, d);
        }
      }
    }
  }
  check("attention o", o.values(), want, 2e-2);  // weights and result: 8 bits, values up to 4
}

void cross_entropy(const tk::device& device) {
  constexpr int64_t kRows = 24, kWidth = 50257;
  const floats logits = random_numbers(kRows * kWidth, 8);
  std::vector<int64_t> targets(kRows);
  for (int64_t r = 0; r < kRows; ++r) targets[r] = 2000 * r;
  const buffer<float> x(device, logits), loss(device, 1);
  const buffer<int64_t> aims(device, targets);
  const auto planned = tk::plan(tk::cross_entropy_forward_problem{.rows = kRows,
                                                                  .width = kWidth,
                                                                  .stride = kWidth,
                                                                  .gradient = true,
                                                                  .gradient_stride = kWidth,
                                                                  .type = tk::dtype::float32},
                                device);
  const buffer<char> memory(device, planned.workspace.bytes);
  const buffer<int> counters(device, planned.workspace.counters);
  tk::launch(
      planned,
      {.logits = x.data(), .targets = aims.data(), .loss = loss.data(), .gradient = x.data()},
      {memory.data(), counters.data()}, nullptr);

  double total = 0;
  std::vector<double> want(logits.size());
  for (int64_t r = 0; r < kRows; ++r) {
    const float* row = &logits[r * kWidth];
    double sum = 0;
    for (int64_t j = 0; j < kWidth; ++j) sum += std::exp(double(row[j]));
    total += std::log(sum) - row[targets[r]];
    for (int64_t j = 0; j < kWidth; ++j) {
      want[r * kWidth + j] = (std::exp(double(row[j])) / sum - (j == targets[r])) / kRows;
    }
  }
  check("cross_entropy loss", loss.values(), {total / kRows}, 1e-5);
  check("cross_entropy gradient", x.values(), want, 1e-7);
}

int main() {
  try {
    kittens::host::check_library();  // built from the headers that this was compiled with
    const tk::device* const gpu = tk::find_device(0);
    const tk::device device = gpu != nullptr ? *gpu : tk::simulated_device();
    std::printf("on %s\n", gpu != nullptr ? "CUDA device 0" : "the simulator");
    for (const auto& run : {layer_norm, attention, cross_entropy}) run(device);
  } catch (const tk::error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return failed ? 1 : 0;
}
