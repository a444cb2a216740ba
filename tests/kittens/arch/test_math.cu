// arch/math.cuh: within the stated bounds of double-precision references, and at the edges.
#include <cfloat>
#include <functional>
#include <limits>

#include "harness.h"
#include "kittens/arch/math.cuh"
#include "kittens/arch/thread.cuh"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kUlp = 1.1920928955078125e-7;  // 2^-23, of a number in [1, 2)

enum class function { exp2, log2, rsqrt, reciprocal, tanh };

template <function F>
__global__ void applies(const float* in, float* out, int count) {
  for (int i = arch::thread_id(); i < count; i += arch::block_threads()) {
    if constexpr (F == function::exp2) out[i] = arch::exp2_approx(in[i]);
    if constexpr (F == function::log2) out[i] = arch::log2_approx(in[i]);
    if constexpr (F == function::rsqrt) out[i] = arch::rsqrt_approx(in[i]);
    if constexpr (F == function::reciprocal) out[i] = arch::reciprocal_approx(in[i]);
    if constexpr (F == function::tanh) out[i] = arch::tanh_approx(in[i]);
  }
}

template <function F>
std::vector<float> apply(const std::vector<float>& in) {
  const buffer<float> from(in), to(in.size());
  run(applies<F>, {.grid = {1}, .block = {128}}, from.data(), to.data(),
      static_cast<int>(in.size()));
  return to.get();
}

std::vector<float> range(double first, double last, int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(first + (last - first) * i / (count - 1));
  return values;
}

template <function F>
void check_range(double first, double last, double relative, double absolute,
                 const std::function<double(double)>& reference) {
  const std::vector<float> in = range(first, last, 1000), got = apply<F>(in);
  for (size_t i = 0; i < in.size(); ++i) {
    const double want = reference(in[i]);
    CHECK_CLOSE(got[i], want, std::fabs(want) * relative + absolute);
  }
}

TEST(exp2_is_close) {
  check_range<function::exp2>(-126, 127, 2 * kUlp, 0, [](double x) { return std::exp2(x); });
  check_range<function::exp2>(-1, 1, 2 * kUlp, 0, [](double x) { return std::exp2(x); });
}
TEST(log2_is_close) {
  check_range<function::log2>(0.5, 2, 0, 3 * kUlp, [](double x) { return std::log2(x); });
  check_range<function::log2>(3, 1e6, 3 * kUlp, 0, [](double x) { return std::log2(x); });
}
TEST(rsqrt_is_close) {
  check_range<function::rsqrt>(1e-3, 1e4, 2 * kUlp, 0, [](double x) { return 1 / std::sqrt(x); });
}
TEST(reciprocal_is_close) {
  check_range<function::reciprocal>(0.1, 1e5, kUlp, 0, [](double x) { return 1 / x; });
}
TEST(tanh_is_close) {
  check_range<function::tanh>(-10, 10, 0.0006, 1e-7, [](double x) { return std::tanh(x); });
}

// NaN where a NaN is wanted, else the same value and the same sign of zero.
template <function F>
void check_edges(const std::vector<float>& in, const std::vector<float>& want) {
  const std::vector<float> got = apply<F>(in);
  for (size_t i = 0; i < in.size(); ++i) {
    CHECK(std::isnan(got[i]) == std::isnan(want[i]));
    if (std::isnan(want[i])) continue;
    CHECK_EQUAL(got[i], want[i]);
    CHECK(std::signbit(got[i]) == std::signbit(want[i]));
  }
}

TEST(functions_at_their_edges) {
  const float subnormal = FLT_MIN / 2;
  check_edges<function::exp2>({-kInfinity, kInfinity, kNaN, 0, -200, 200, -127, subnormal},
                              {0, kInfinity, kNaN, 1, 0, kInfinity, 0, 1});
  check_edges<function::log2>({0, -1, kInfinity, kNaN, 1, subnormal},
                              {-kInfinity, kNaN, kInfinity, kNaN, 0, -kInfinity});
  check_edges<function::rsqrt>({0, -0.0f, -1, kInfinity, kNaN, 4, subnormal},
                               {kInfinity, -kInfinity, kNaN, 0, kNaN, 0.5f, kInfinity});
  check_edges<function::reciprocal>({0, -0.0f, kInfinity, -kInfinity, kNaN, 4, subnormal, FLT_MAX},
                                    {kInfinity, -kInfinity, 0, -0.0f, kNaN, 0.25f, kInfinity, 0});
  check_edges<function::tanh>({0, kInfinity, -kInfinity, kNaN}, {0, 1, -1, kNaN});
}

__global__ void exact(const float* in, float* out, int* bits) {
  out[0] = arch::fma(in[0], in[1], in[2]);
  out[1] = arch::mul_rounded(in[0], in[1]) + in[2];
  bits[0] = arch::popc(0);
  bits[1] = arch::popc(0xffffffffu);
  bits[2] = arch::popc(0x80010003u);
  bits[3] = int(arch::byte_permute(0x33221100u, 0x77665544u, 0x0735u));
  bits[4] = int(arch::select_bits(0x12345678u, 0x0abcdef0u, 0x00ff0f0fu));
}

TEST(fma_rounds_once_mul_twice_popc_counts_bytes_and_bits_are_chosen) {
  const float x = 1 + FLT_EPSILON;  // x² − 1 − 2ε = ε², which a rounded product loses
  const buffer<float> in(std::vector<float>{x, x, -(1 + 2 * FLT_EPSILON)}), out(2);
  const buffer<int> bits(5);
  run(exact, {.grid = {1}, .block = {1}}, in.data(), out.data(), bits.data());
  CHECK_EQUAL(out.get()[0], FLT_EPSILON * FLT_EPSILON);
  CHECK_EQUAL(out.get()[1], 0.0f);
  CHECK_EQUAL(bits.get()[0], 0);
  CHECK_EQUAL(bits.get()[1], 32);
  CHECK_EQUAL(bits.get()[2], 4);
  CHECK_EQUAL(bits.get()[3], 0x00773355);
  CHECK_EQUAL(bits.get()[4], 0x0a34d6f8);
}

}  // namespace
