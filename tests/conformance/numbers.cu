// arch/math.cuh, and the conversions of CUDA's headers as types/dtype.cuh calls them.
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#include "kittens/arch/arch.cuh"
#include "kittens/types/dtype.cuh"
#include "record.h"

using namespace kittens;
using namespace kittens::testing;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kSubnormal = FLT_MIN / 2;

// out[i] = f(in[i]); F is a function object.
template <class F, class In, class Out>
__global__ void applies(const In* in, Out* out, int count) {
  for (int i = arch::thread_id(); i < count; i += arch::block_threads()) out[i] = F()(in[i]);
}

template <class F, class Out = float, class In>
std::vector<Out> apply(const std::vector<In>& in) {
  const buffer<In> from(in);
  const buffer<Out> to(in.size());
  run(applies<F, In, Out>, {.grid = {1}, .block = {128}}, from.data(), to.data(),
      static_cast<int>(in.size()));
  return to.get();
}

#define FUNCTION(name, call)                                        \
  struct name {                                                     \
    KITTENS_DEVICE float operator()(float x) const { return call; } \
  }
FUNCTION(exp2_of, arch::exp2_approx(x));
FUNCTION(log2_of, arch::log2_approx(x));
FUNCTION(rsqrt_of, arch::rsqrt_approx(x));
FUNCTION(reciprocal_of, arch::reciprocal_approx(x));
FUNCTION(tanh_of, arch::tanh_approx(x));

// ---- the special-function unit

std::vector<float> range(double first, double last, int count = 300) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(first + (last - first) * (i + 0.37) / count));
  }
  return values;
}

// Positive numbers of every size, subnormal ones left out.
std::vector<float> every_size(int count = 300) {
  std::mt19937 generator(11);
  std::vector<float> values;
  while (static_cast<int>(values.size()) < count) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(generator()) >> 1);
    if (std::isnormal(x)) values.push_back(x);
  }
  return values;
}

std::vector<float> with_minus(std::vector<float> values) {
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  return values;
}

// The device's bound plus that of the simulator, which is right to half a unit or so.
TEST(exp2) {
  const rule bound = within_ulps(3);
  record("exp2.middle", apply<exp2_of>(range(-1, 1)), bound);
  record("exp2.wide", apply<exp2_of>(range(-125.9, 127.9)), bound);
  record("exp2.integers", apply<exp2_of>(range(-126.37, 127.63, 254)), bound);
  record("exp2.special",
         apply<exp2_of>(std::vector<float>{-kInfinity, kInfinity, kNaN, 0, -0.0f, 128, 200, -126,
                                           -126.5f, -127, -149, -150, -200, kSubnormal, -kSubnormal,
                                           FLT_MAX, -FLT_MAX}),
         bound);
}

TEST(log2) {
  record("log2.middle", apply<log2_of>(range(0.5, 2)), within(0, 0x1p-22 + 0x1p-24));
  const rule bound = within(0x1p-22 + 0x1p-24, 0);
  std::vector<float> sizes;  // but those whose bound is the absolute one
  for (const float x : every_size()) {
    if (x < 0.5f || x > 2) sizes.push_back(x);
  }
  record("log2.wide", apply<log2_of>(range(2, 1e6)), bound);
  record("log2.every_size", apply<log2_of>(sizes), bound);
  record("log2.special",
         apply<log2_of>(std::vector<float>{0, -0.0f, -1, kInfinity, -kInfinity, kNaN, 1, 2, 0.25f,
                                           kSubnormal, -kSubnormal, FLT_MIN, FLT_MAX}),
         bound);
}

TEST(rsqrt) {
  const rule bound = within(0x1.8p-23 * 1.02 + 0x1p-24, 0);  // 2^-22.4 and half a unit
  record("rsqrt.middle", apply<rsqrt_of>(range(0.25, 4)), bound);
  record("rsqrt.every_size", apply<rsqrt_of>(every_size()), bound);
  record("rsqrt.special",
         apply<rsqrt_of>(std::vector<float>{0, -0.0f, -1, kInfinity, -kInfinity, kNaN, 1, 4, 16,
                                            kSubnormal, -kSubnormal, FLT_MIN, FLT_MAX}),
         bound);
}

TEST(reciprocal) {
  record("reciprocal.middle", apply<reciprocal_of>(range(0.5, 2)), within_ulps(1));
  std::vector<float> sizes;  // those whose reciprocal is not subnormal
  for (const float x : with_minus(every_size())) {
    if (std::fabs(x) < 0x1p126f) sizes.push_back(x);
  }
  record("reciprocal.every_size", apply<reciprocal_of>(sizes), within_ulps(1));
  record("reciprocal.special",
         apply<reciprocal_of>(std::vector<float>{0, -0.0f, kInfinity, -kInfinity, kNaN, 1, 4, -3,
                                                 kSubnormal, -kSubnormal, FLT_MIN, FLT_MAX,
                                                 -FLT_MAX, 0x1p126f, 0x1p127f, 0x1.8p126f}),
         within_ulps(1));
}

TEST(tanh) {
  const rule bound = within(0x1p-11 * 1.001, 0);
  record("tanh.middle", apply<tanh_of>(range(-4, 4)), bound);
  record("tanh.every_size", apply<tanh_of>(with_minus(every_size(150))), bound);
  record("tanh.special",
         apply<tanh_of>(std::vector<float>{0, -0.0f, kInfinity, -kInfinity, kNaN, 100, -100,
                                           kSubnormal, -kSubnormal, FLT_MIN, FLT_MAX}),
         bound);
}

// ---- plain arithmetic

__global__ void arithmetic(const float* in, float* out, int count) {
  for (int i = arch::thread_id(); i < count; i += arch::block_threads()) {
    const float a = in[i], b = in[(i + 1) % count], c = in[(i + 2) % count];
    out[i] = arch::fma(a, b, c);
    out[count + i] = arch::mul_rounded(a, b) + c;
  }
}

TEST(arithmetic) {
  std::vector<float> in = with_minus(every_size(100));
  for (const float x : random_values(200, 12)) in.push_back(x + 0x1p-20f);
  const float next = 1 + FLT_EPSILON;
  for (const float x : {next, next, -(1 + 2 * FLT_EPSILON), 0.0f, -0.0f, kInfinity, -kInfinity,
                        kNaN, kSubnormal, -kSubnormal, FLT_MIN, FLT_MAX, 0x1p-149f}) {
    in.push_back(x);
  }
  const int count = static_cast<int>(in.size());
  const buffer<float> from(in), to(2 * in.size());
  run(arithmetic, {.grid = {1}, .block = {128}}, from.data(), to.data(), count);
  record("fma_and_mul_rounded", to.get(), same_values());
}

struct popc_of {
  KITTENS_DEVICE int operator()(unsigned x) const { return arch::popc(x); }
};

TEST(popc) {
  std::vector<unsigned> in = {0, 1, 0xffffffffu, 0x80010003u};
  std::mt19937 generator(13);
  for (int i = 0; i < 100; ++i) in.push_back(static_cast<unsigned>(generator()));
  record("popc", apply<popc_of, int>(in));
}

// ---- conversions

template <class To>
struct converts {
  template <class From>
  KITTENS_DEVICE To operator()(From x) const {
    return convert<To>(x);
  }
};

// What the bits of a register of two elements are as floats, and the reverse with a partner.
template <class T>
struct unpacks {
  KITTENS_DEVICE float2 operator()(uint32_t both) const {
    float2 wide;
    unpack<T>(wide.x, wide.y, both);
    return wide;
  }
};
template <class T>
struct packs {
  KITTENS_DEVICE uint32_t operator()(float2 wide) const { return pack<T>(wide.x, wide.y); }
};

template <class T>
std::vector<T> every_element() {
  std::vector<T> elements;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    elements.push_back(std::bit_cast<T>(static_cast<uint16_t>(bits)));
  }
  return elements;
}

// Elements, their neighbours and what is half way between, where conversions decide; with numbers
// too large and too small, and any others.
template <class T>
std::vector<float> hard_to_round() {
  std::vector<float> values = {0,           -0.0f,       kInfinity,      -kInfinity, kNaN,
                               FLT_MAX,     -FLT_MAX,    FLT_MIN,        kSubnormal, 0x1p-149f,
                               65504,       65519,       65519.996f,     65520,      65536,
                               0x1.fep127f, 0x1.ffp127f, 0x1.fefffep127f};
  for (unsigned bits = 0; bits < 0x7c00; bits += 251) {
    const auto element = [](unsigned i) {
      return static_cast<float>(std::bit_cast<T>(static_cast<uint16_t>(i)));
    };
    const float low = element(bits), high = element(bits + 1);
    const auto tie = static_cast<float>((static_cast<double>(low) + high) / 2);
    for (const float x : {low, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInfinity)}) {
      values.push_back(bits % 2 == 0 ? x : -x);
    }
  }
  for (const float x : with_minus(every_size(400))) values.push_back(x);
  if (values.size() % 2 != 0) values.push_back(1);
  return values;
}

template <class T>
void record_conversions() {
  const std::string name = recorded_type<T>;
  const std::vector<T> narrow_ones = every_element<T>();
  record("convert." + name + "_to_float", apply<converts<float>>(narrow_ones), same_values());
  const std::vector<float> hard = hard_to_round<T>();
  record("convert.float_to_" + name, apply<converts<T>, T>(hard), same_values());
  using other = std::conditional_t<std::is_same_v<T, half>, bf16, half>;
  record("convert." + name + "_to_" + recorded_type<other>,
         apply<converts<other>, other>(narrow_ones), same_values());

  std::vector<uint32_t> both;
  for (unsigned i = 0; i < 0x10000; i += 13) both.push_back(i | (0xffffu - i) << 16);
  std::vector<float> wide;
  for (const float2 pair : apply<unpacks<T>, float2>(both)) {
    wide.push_back(pair.x);
    wide.push_back(pair.y);
  }
  record("unpack." + name, wide, same_values());
  std::vector<float2> pairs;
  for (size_t i = 0; i < hard.size(); i += 2) pairs.push_back({hard[i], hard[i + 1]});
  std::vector<T> packed;
  for (const uint32_t word : apply<packs<T>, uint32_t>(pairs)) {
    packed.push_back(std::bit_cast<T>(static_cast<uint16_t>(word)));
    packed.push_back(std::bit_cast<T>(static_cast<uint16_t>(word >> 16)));
  }
  record("pack." + name, packed, same_values());
}

TEST(conversions) {
  record_conversions<half>();
  record_conversions<bf16>();
}

}  // namespace
