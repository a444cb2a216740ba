// The products beside gelu against their definitions in double.
#include <kittens.cuh>

#include "linear_gelu.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

struct problem {
  int rows, inner, outer;
  bool k_major, by_tanh;
  bool bias = true;  // and hidden and dbias, where they may be missing
};

struct value_and_slope {
  double value, slope;
};

value_and_slope gelu(double x, bool by_tanh) {
  const double pi = std::acos(-1.0);
  if (!by_tanh) {
    const double normal = std::erfc(-x / std::sqrt(2.0)) / 2;
    return {x * normal, normal + x * std::exp(-x * x / 2) / std::sqrt(2 * pi)};
  }
  const double root = std::sqrt(2 / pi), t = std::tanh(root * (x + 0.044715 * x * x * x));
  const double slope = root * (1 + 3 * 0.044715 * x * x);
  return {x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) * slope / 2};
}

// x and a weight with room behind their rows, and the sum of a row of one with a column of the
// other.
class factors {
 public:
  explicit factors(const problem& is, unsigned seed)
      : is(is),
        xs(normal_values<bf16>(is.rows * stride(is.inner), seed)),
        weights(normal_values<bf16>(rows_of_weight() * weight_stride(), seed + 1, 0, 0.1f)),
        x(xs),
        weight(weights),
        in(doubles(xs)),
        w(doubles(weights)) {}

  int x_stride() const { return stride(is.inner); }
  int weight_stride() const { return stride(is.k_major ? is.inner : is.outer); }
  double sum(int m, int n) const {
    const int along = is.k_major ? 1 : weight_stride(),
              first = is.k_major ? n * weight_stride() : n;
    double total = 0;
    for (int k = 0; k < is.inner; ++k) total += in[m * x_stride() + k] * w[first + k * along];
    return total;
  }

 private:
  static int stride(int width) { return (width + 7) / 8 * 8 + 8; }
  int rows_of_weight() const { return is.k_major ? is.outer : is.inner; }

  const problem& is;
  std::vector<bf16> xs, weights;

 public:
  const buffer<bf16> x, weight;

 private:
  std::vector<double> in, w;
};

activation function_of(const problem& is) {
  return is.by_tanh ? activation::gelu_tanh : activation::gelu_erf;
}

// A sum of 400 products of 0.1 is off by 0.001 at most, before it is rounded.
constexpr double kOfSum = 1e-3;

void check_forward(const problem& is) {
  const factors given(is, 1);
  const auto biases = normal_values<bf16>(is.outer, 3);
  const buffer<bf16> bias(biases), hidden(is.rows * is.outer), activated(is.rows * is.outer);
  run({.problem = {.rows = is.rows,
                   .inner = is.inner,
                   .outer = is.outer,
                   .x_stride = given.x_stride(),
                   .weight_stride = given.weight_stride(),
                   .k_major = is.k_major,
                   .function = function_of(is),
                   .type = dtype::bfloat16},
       .tensors = {.x = given.x.data(),
                   .weight = given.weight.data(),
                   .bias = is.bias ? bias.data() : nullptr,
                   .hidden = is.bias ? hidden.data() : nullptr,
                   .activated = activated.data()}});
  const auto b = doubles(biases);
  std::vector<double> want, want_active;
  for (int m = 0; m < is.rows; ++m) {
    for (int n = 0; n < is.outer; ++n) want.push_back(given.sum(m, n) + (is.bias ? b[n] : 0));
  }
  if (is.bias) check_all("hidden", hidden.get(), want, 0x1.1p-8, kOfSum);
  const auto rounded = is.bias ? doubles(hidden.get()) : want;
  for (const double h : rounded) want_active.push_back(gelu(h, is.by_tanh).value);
  // Where hidden is not known as it was rounded, it is off by 2⁻⁸ of itself.
  check_all("activated", activated.get(), want_active, is.bias ? 0x1.1p-8 : 0x1.2p-6, 5e-3);
}

void check_backward(const problem& is) {
  const factors given(is, 5);
  const auto hiddens = normal_values<bf16>(is.rows * is.outer, 7);
  const buffer<bf16> hidden(hiddens), dhidden(is.rows * is.outer), dbias(is.outer);
  const buffer<float> partial(dbias_parts(is.rows) * is.outer);
  run({.problem = {.rows = is.rows,
                   .inner = is.inner,
                   .outer = is.outer,
                   .dy_stride = given.x_stride(),
                   .weight_stride = given.weight_stride(),
                   .k_major = is.k_major,
                   .function = function_of(is),
                   .type = dtype::bfloat16},
       .tensors = {.dy = given.x.data(),
                   .weight = given.weight.data(),
                   .hidden = hidden.data(),
                   .dhidden = dhidden.data(),
                   .dbias = is.bias ? dbias.data() : nullptr},
       .partial = partial.data()});
  const auto h = doubles(hiddens);
  std::vector<double> want, want_sums(is.outer), sizes(is.outer);
  const auto got = doubles(dhidden.get());
  for (int m = 0; m < is.rows; ++m) {
    for (int n = 0; n < is.outer; ++n) {
      const size_t at = want.size();
      want.push_back(given.sum(m, n) * gelu(h[at], is.by_tanh).slope);
      want_sums[n] += got[at];
    }
  }
  check_all("dhidden", dhidden.get(), want, 0x1.2p-8, 2 * kOfSum);
  if (is.bias) check_all("dbias", dbias.get(), want_sums, 0x1.1p-8, 1e-3);
}

void check(const problem& is) {
  check_forward(is);
  check_backward(is);
}

}  // namespace

// Several tiles both ways, of which the last are short; more steps than stages, of which the last
// is short.
TEST(rows_of_the_outer_width) {
  check({.rows = 270, .inner = 392, .outer = 264, .k_major = true, .by_tanh = true});
}
TEST(rows_of_the_inner_width) {
  check({.rows = 270, .inner = 392, .outer = 264, .k_major = false, .by_tanh = false});
}
TEST(less_than_a_tile) {
  check({.rows = 70, .inner = 8, .outer = 24, .k_major = true, .by_tanh = false});
  check({.rows = 70, .inner = 8, .outer = 24, .k_major = false, .by_tanh = true, .bias = false});
}
