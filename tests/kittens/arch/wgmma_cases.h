// What the tests of wgmma share: operands in every layout that a matrix descriptor can name, and a
// kernel that multiplies them.
#pragma once

#include <random>
#include <utility>

#include "harness.h"
#include "kittens/arch/arch.cuh"

namespace kittens::testing {

inline constexpr int kRows = 64, kDepth = 64;  // of a
inline constexpr int kSlices = kDepth / 16;    // each as deep as one wgmma
inline constexpr int kWarpgroup = 128;         // threads

// Where the elements of an operand are in shared memory: extent × kDepth, of 16 bits each.
struct layout {
  bool mn_major;
  int swizzle;  // bytes
  int extent;   // rows of a, columns of b

  // With multiples of 1024 for the alignment of every swizzle.
  int bytes() const {
    const int line = swizzle == 0 || !mn_major ? 8 : swizzle / 2;  // elements
    const int columns = (extent + line - 1) / line * line;
    return (columns * kDepth * 2 + 1023) / 1024 * 1024;
  }
  // In bytes. A swizzled operand is in chunks, as wide as a line; a plain one in cores of 8 × 8.
  int offset(int mn, int k) const {
    if (swizzle == 0) {
      const int core = mn_major ? mn / 8 * (kDepth / 8) + k / 8 : k / 8 * (extent / 8) + mn / 8;
      return core * 128 + (mn_major ? k % 8 * 16 + mn % 8 * 2 : mn % 8 * 16 + k % 8 * 2);
    }
    const int line = swizzle / 2;  // elements
    const int plain = mn_major ? (mn / line * kDepth + k) * swizzle + mn % line * 2
                               : (k / line * extent + mn) * swizzle + k % line * 2;
    return plain ^ ((plain >> 7) & (swizzle / 16 - 1)) << 4;
  }
  int leading() const {
    if (mn_major) return swizzle == 0 ? 128 : kDepth * swizzle;
    return swizzle == 0 ? extent / 8 * 128 : 16;
  }
  int stride() const {
    if (swizzle != 0) return 8 * swizzle;
    return mn_major ? kDepth / 8 * 128 : 128;
  }
  // Where the 16 columns of a, rows of b, from k on begin.
  int slice(int k) const {
    if (mn_major) return swizzle == 0 ? k / 8 * 128 : k * swizzle;
    if (swizzle == 0) return k / 8 * leading();
    return k / (swizzle / 2) * extent * swizzle + k % (swizzle / 2) * 2;
  }
};

// An operand, as a kernel takes it.
struct operand {
  const uint32_t* words;  // what goes to shared memory; or the fragments of registers,
                          // [kSlices][4][kWarpgroup]
  int bytes, leading, stride, swizzle;
  int slices[kSlices];  // where each begins
};

// A matrix of [extent][kDepth] on the device, in a layout.
class placed {
 public:
  template <class T>
  placed(const std::vector<T>& values, const layout& at) : at_(at), words_(image(values, at)) {}

  operand get() const {
    operand o{words_.data(), at_.bytes(), at_.leading(), at_.stride(), at_.swizzle, {}};
    for (int i = 0; i < kSlices; ++i) o.slices[i] = at_.slice(16 * i);
    return o;
  }

 private:
  template <class T>
  static std::vector<uint32_t> image(const std::vector<T>& values, const layout& at) {
    std::vector<uint32_t> words(at.bytes() / 4, 0x7fad7fad);  // NaNs, where nothing is
    for (size_t i = 0; i < values.size(); ++i) {
      const int offset = at.offset(static_cast<int>(i) / kDepth, static_cast<int>(i) % kDepth);
      std::memcpy(reinterpret_cast<char*>(words.data()) + offset, &values[i], sizeof(T));
    }
    return words;
  }

  layout at_;
  buffer<uint32_t> words_;
};

// a of [64][kDepth], as the threads of a warpgroup hold it: [kSlices][4][kWarpgroup].
template <class T>
std::vector<uint32_t> fragments(const std::vector<T>& a) {
  std::vector<uint32_t> words;
  for (int at = 0; at < kSlices * 4 * kWarpgroup; ++at) {
    const int slice = at / (4 * kWarpgroup), i = at / kWarpgroup % 4, thread = at % kWarpgroup;
    const int row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
    const int column = slice * 16 + thread % 4 * 2 + i / 2 * 8;
    std::memcpy(&words.emplace_back(), &a[row * kDepth + column], 4);
  }
  return words;
}

// Accumulators are [N / 2][kWarpgroup] in global memory; here element (row, column).
inline int accumulator_at(int row, int column) {
  const int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
  const int i = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
  return i * kWarpgroup + thread;
}

// d = a·b, or d = a·b + c where c is given.
template <class T, int N, bool RegisterA, arch::major A, arch::major B>
__global__ void __launch_bounds__(kWarpgroup)
    product(operand a, operand b, const float* c, float* d) {
  const int thread = arch::thread_id();
  uint8_t* const a_shared = arch::dynamic_shared();
  uint8_t* const b_shared = a_shared + a.bytes;
  const auto copy = [&](uint8_t* to, const operand& from) {
    for (int i = thread; i < from.bytes / 4; i += kWarpgroup) {
      reinterpret_cast<uint32_t*>(to)[i] = from.words[i];
    }
  };
  if (!RegisterA) copy(a_shared, a);
  copy(b_shared, b);
  arch::fence_async_proxy();
  arch::sync_block();
  float sum[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) sum[i] = c != nullptr ? c[i * kWarpgroup + thread] : 1e30f;
  uint32_t fragment[kSlices][4] = {};
#pragma unroll
  for (int i = 0; RegisterA && i < kSlices * 4; ++i) {
    fragment[i / 4][i % 4] = a.words[i * kWarpgroup + thread];
  }
  const auto descriptor = [](const operand& o, const uint8_t* base, int slice) {
    return arch::matrix_descriptor(arch::shared_address(base) + o.slices[slice], o.leading,
                                   o.stride, o.swizzle);
  };
  arch::wgmma_hold(sum, fragment);
  arch::wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    const bool accumulate = slice != 0 || c != nullptr;
    const uint64_t right = descriptor(b, b_shared, slice);
    if constexpr (RegisterA) {
      arch::wgmma<T, N, B>(sum, fragment[slice], right, accumulate);
    } else {
      arch::wgmma<T, N, A, B>(sum, descriptor(a, a_shared, slice), right, accumulate);
    }
  }
  arch::wgmma_commit();
  arch::wgmma_wait<0>();
  arch::wgmma_hold(sum);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) d[i * kWarpgroup + thread] = sum[i];
}

template <class T>
std::vector<T> to_elements(const std::vector<float>& values) {
  std::vector<T> elements;
  for (const float v : values) elements.push_back(T(v));
  return elements;
}

// Integers so small that no sum of their products is rounded.
inline std::vector<float> small_integers(int count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(generator() % 9) - 4);
  return values;
}

// [64][width], as accumulators and back.
inline std::vector<float> accumulators(const std::vector<float>& matrix, int width) {
  std::vector<float> values(kRows * width);
  for (size_t i = 0; i < matrix.size(); ++i) {
    values[accumulator_at(static_cast<int>(i) / width, static_cast<int>(i) % width)] = matrix[i];
  }
  return values;
}
inline std::vector<float> matrix(const std::vector<float>& accumulators, int width) {
  std::vector<float> values(accumulators.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        accumulators[accumulator_at(static_cast<int>(i) / width, static_cast<int>(i) % width)];
  }
  return values;
}

// a·bᵀ + c in double; c may be empty.
inline std::vector<double> reference(const std::vector<float>& a, const std::vector<float>& b,
                                     const std::vector<float>& c, int width) {
  std::vector<double> d(static_cast<size_t>(kRows * width));
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < width; ++column) {
      double sum = c.empty() ? 0 : c[row * width + column];
      for (int k = 0; k < kDepth; ++k) {
        sum += static_cast<double>(a[row * kDepth + k]) * b[column * kDepth + k];
      }
      d[row * width + column] = sum;
    }
  }
  return d;
}

// An instance of `product`, and what it is one of.
struct product_kernel {
  void (*kernel)(operand, operand, const float*, float*);
  int width;
  bool register_a, a_mn_major, b_mn_major;

  std::string describe() const {
    const auto order = [](bool mn_major) { return mn_major ? "MN-major" : "K-major"; };
    return "width " + to_text(width) + ", a " + (register_a ? "in registers" : order(a_mn_major)) +
           ", b " + order(b_mn_major);
  }
};

template <class T, int N, bool RegisterA, arch::major A, arch::major B>
constexpr product_kernel make_product() {
  return {&product<T, N, RegisterA, A, B>, N, RegisterA, A == arch::major::mn,
          B == arch::major::mn};
}

// a·bᵀ + c, with operands in these layouts. a: [64][kDepth], b: [width][kDepth], c: [64][width] or
// empty.
template <class T>
std::vector<float> multiply(const product_kernel& how, const std::vector<float>& a,
                            const std::vector<float>& b, const std::vector<float>& c, int a_swizzle,
                            int b_swizzle) {
  const std::vector<T> left = to_elements<T>(a);
  const placed left_shared(left, {how.a_mn_major, a_swizzle, kRows});
  const placed right(to_elements<T>(b), {how.b_mn_major, b_swizzle, how.width});
  const buffer<uint32_t> left_registers(fragments(left));
  const buffer<float> d(kRows * how.width), sum(accumulators(c, how.width));
  operand a_at = left_shared.get();
  if (how.register_a) {
    a_at.words = left_registers.data();
    a_at.bytes = 0;
  }
  run(how.kernel,
      {.grid = {1}, .block = {kWarpgroup}, .shared_bytes = a_at.bytes + right.get().bytes}, a_at,
      right.get(), c.empty() ? nullptr : sum.data(), d.data());
  return matrix(d.get(), how.width);
}

// Every swizzle: the products must be exact.
template <class T>
void check_product(const product_kernel& how) {
  const int n = how.width;
  const std::vector<float> a = small_integers(kRows * kDepth, n), b = small_integers(n * kDepth, 1);
  const std::vector<float> sums[2] = {{}, small_integers(kRows * n, 2)};
  const std::vector<double> wanted[2] = {reference(a, b, sums[0], n), reference(a, b, sums[1], n)};
  constexpr int kSwizzles[] = {0, 32, 64, 128};
  for (int i = 0; i < 4; ++i) {
    const int a_swizzle = kSwizzles[how.register_a ? 0 : (i + n / 8) % 4], b_swizzle = kSwizzles[i];
    const std::vector<double>& want = wanted[i % 2];
    const std::vector<float> got = multiply<T>(how, a, b, sums[i % 2], a_swizzle, b_swizzle);
    int wrong = 0;
    for (int at = 0; at < kRows * n; ++at) wrong += !(got[at] == want[at]);
    if (wrong == 0) continue;
    fail(__FILE__, __LINE__,
         to_text(wrong) + " elements are wrong: " + how.describe() + ", swizzles " +
             to_text(a_swizzle) + " and " + to_text(b_swizzle) + (i % 2 == 0 ? "" : ", adding"));
  }
}

// All widths of one form.
template <class T, bool RegisterA, arch::major A, arch::major B>
void check_widths() {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    for (const product_kernel& how : {make_product<T, 8 * (I + 1), RegisterA, A, B>()...}) {
      check_product<T>(how);
    }
  }(std::make_integer_sequence<int, 32>());
}

}  // namespace kittens::testing
