// ops/register/vector_map.cuh: each operation against the C library, on every layout and element
// type.
#include <cmath>
#include <limits>

#include "vectors.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

constexpr int kLength = 256;

template <class V, class Op>
__global__ void apply(const float* a, const float* b, float* out, Op op) {
  V x, y, z;
  load(x, gl<const float>::vector(a, kLength));
  load(y, gl<const float>::vector(b, kLength));
  zero(z);
  op(z, x, y);
  store(gl<float>::vector(out, kLength), z);
}

// Checks op(dst, a, b) element by element against `want`, a function of two doubles.
template <class Op, class Want>
void check(Op op, Want want, double ulps) {
  const std::vector<float> a = testing::random_values(kLength, 1),
                           b = testing::random_values(kLength, 2);
  const buffer<float> x(a), y(b), out(static_cast<size_t>(kLength));
  testing::for_each_vector<kLength>([&]<class V>() {
    using T = typename V::dtype;
    run(apply<V, Op>, {.grid = {1}, .block = {32}}, x.data(), y.data(), out.data(), op);
    const std::vector<float> got = out.get();
    for (int i = 0; i < kLength; ++i) {
      const double in_a = convert<float>(convert<T>(a[i])), in_b = convert<float>(convert<T>(b[i]));
      const double exact = want(in_a, in_b);
      CHECK_CLOSE(got[i], exact,
                  std::fabs(exact) * (testing::rounding<T>() + ulps * 0x1p-23) + 1e-7);
    }
  });
}

// An operation as a type, so that it can be given to a kernel.
#define OPERATION(name, statement)                                       \
  struct name {                                                          \
    template <class V>                                                   \
    KITTENS_DEVICE void operator()(V& z, const V& x, const V& y) const { \
      (void)x, (void)y;                                                  \
      statement;                                                         \
    }                                                                    \
  }

OPERATION(add_vectors, add(z, x, y));
OPERATION(sub_vectors, sub(z, x, y));
OPERATION(mul_vectors, mul(z, x, y));
OPERATION(div_vectors, div(z, x, y));
OPERATION(max_vectors, max(z, x, y));
OPERATION(min_vectors, min(z, x, y));
OPERATION(add_number, add(z, x, 0.5f));
OPERATION(mul_number, mul(z, x, -2.0f));
OPERATION(fma_vectors, fma(z, x, y, x));
OPERATION(exp_vector, exp(z, x));
OPERATION(exp2_vector, exp2(z, x));
OPERATION(log_vector, abs(z, x); log(z, z));
OPERATION(log2_vector, abs(z, x); log2(z, z));
OPERATION(relu_vector, relu(z, x));
OPERATION(copy_vector, copy(z, x));
OPERATION(in_place, copy(z, x); add(z, z, z));
OPERATION(one_vector, one(z));
OPERATION(fill_right, right_fill(z, x, 100, -7.0f));
OPERATION(fill_left, left_fill(z, x, 100, -7.0f));
OPERATION(fill_nothing, right_fill(z, x, kLength, -7.0f));
OPERATION(fill_everything, right_fill(z, x, 0, -7.0f));

TEST(arithmetic) {
  check(add_vectors{}, [](double a, double b) { return a + b; }, 1);
  check(sub_vectors{}, [](double a, double b) { return a - b; }, 1);
  check(mul_vectors{}, [](double a, double b) { return a * b; }, 1);
  check(div_vectors{}, [](double a, double b) { return a / b; }, 2);
  check(fma_vectors{}, [](double a, double b) { return a * b + a; }, 1);
  check(in_place{}, [](double a, double) { return a + a; }, 0);
}
TEST(with_a_number) {
  check(add_number{}, [](double a, double) { return a + 0.5; }, 1);
  check(mul_number{}, [](double a, double) { return a * -2.0; }, 0);
}
TEST(order) {
  check(max_vectors{}, [](double a, double b) { return std::fmax(a, b); }, 0);
  check(min_vectors{}, [](double a, double b) { return std::fmin(a, b); }, 0);
  check(relu_vector{}, [](double a, double) { return std::fmax(a, 0.0); }, 0);
}
TEST(functions) {
  check(exp_vector{}, [](double a, double) { return std::exp(a); }, 2);
  check(exp2_vector{}, [](double a, double) { return std::exp2(a); }, 2);
  check(copy_vector{}, [](double a, double) { return a; }, 0);
  check(one_vector{}, [](double, double) { return 1.0; }, 0);
}

// A logarithm near 1 is near 0: its error is absolute there. log2 is the hardware's, 2^-22 (PTX
// ISA, lg2.approx.ftz.f32), and so is the rounding of a 16-bit result of at most 2.
TEST(logarithms) {
  check(log_vector{}, [](double a, double) { return std::log(std::fabs(a)); }, 4);
  check(log2_vector{}, [](double a, double) { return std::log2(std::fabs(a)); }, 8);
}

// The element's index is not among the operation's arguments; its value says where it lies.
TEST(fills) {
  const std::vector<float> a = testing::exact_values<float>(kLength);
  const buffer<float> x(a), out(static_cast<size_t>(kLength));
  testing::for_each_vector<kLength>([&]<class V>() {
    const auto check_fill = [&](auto op, auto filled) {
      run(apply<V, decltype(op)>, {.grid = {1}, .block = {32}}, x.data(), x.data(), out.data(), op);
      const std::vector<float> got = out.get();
      for (int i = 0; i < kLength; ++i) CHECK_EQUAL(got[i], filled(i) ? -7.0f : a[i]);
    };
    check_fill(fill_right{}, [](int i) { return i >= 100; });
    check_fill(fill_left{}, [](int i) { return i < 100; });
    check_fill(fill_nothing{}, [](int) { return false; });
    check_fill(fill_everything{}, [](int) { return true; });
  });
}

OPERATION(infinities, neg_infty(z); pos_infty(z));
OPERATION(negative_infinities, pos_infty(z); neg_infty(z));

TEST(infinities_are_infinite) {
  const buffer<float> x(testing::exact_values<float>(kLength)), out(static_cast<size_t>(kLength));
  const float infinity = std::numeric_limits<float>::infinity();
  testing::for_each_vector<kLength>([&]<class V>() {
    run(apply<V, infinities>, {.grid = {1}, .block = {32}}, x.data(), x.data(), out.data(), {});
    CHECK_EQUAL(out.get()[17], infinity);
    run(apply<V, negative_infinities>, {.grid = {1}, .block = {32}}, x.data(), x.data(), out.data(),
        {});
    CHECK_EQUAL(out.get()[17], -infinity);
  });
}

}  // namespace
