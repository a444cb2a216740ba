// A small call of cross_entropy's forward, and its check against the formulas in double.
#pragma once

#include <algorithm>
#include <kittens.cuh>
#include <limits>
#include <numeric>
#include <string>

#include "cross_entropy.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

constexpr int64_t kIgnored = -100;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct problem {
  forward_form form;
  int64_t rows, width, stride;
  int64_t offset = 0;           // of the first logit, in elements
  int64_t gradient_offset = 0;  // likewise
  bool in_place = false, gradient = true, int64_targets = true, counted = true, scaled = false;
  double smoothing = 0, z = 0;
  bool loss = true;
  int64_t shift = 0;                     // of the rows whose targets are not columns, or ignored
  int64_t nan_row = -1, empty_row = -1;  // one with a NaN, and one of −inf alone
  bool totalled = false;                 // the total is wanted, and warps count, if any does
  bool asked = true;                     // a target that is no column is to be told
  bool far = false;                      // some rows are, others begin with logits far below
};

// Of row r: every fourth is ignored, and one of each kind of what is no column stands among the
// rest, unless it would spoil a total; the first and the last column are aimed at.
int64_t target_of(const problem& is, int64_t r) {
  if (is.totalled) return r % 4 == 3 ? kIgnored : (r * 37 + 11) % is.width;
  switch ((r + is.shift) % 8) {
    case 1: return is.width - 1;
    case 2: return 0;
    case 3: return kIgnored;
    case 4: return -1;
    case 5: return is.width;
    case 7: return kIgnored;
    default: return (r * 37 + 11) % is.width;
  }
}

struct outputs {
  std::vector<double> loss, gradient;
};

outputs compute(const problem& is, const std::vector<double>& x, const std::vector<int64_t>& aims,
                double count, const std::vector<double>& dloss) {
  outputs want;
  const double smooth = is.smoothing / static_cast<double>(is.width);
  for (int64_t r = 0; r < is.rows; ++r) {
    const double* row = &x[is.offset + r * is.stride];
    const int64_t t = aims[r];
    if (t == kIgnored) {
      want.loss.push_back(0);
      want.gradient.insert(want.gradient.end(), is.width, 0);
      continue;
    }
    double top = -kInfinity, total = 0, plain = 0;
    for (int64_t c = 0; c < is.width; ++c) top = std::max(top, row[c]);
    for (int64_t c = 0; c < is.width; ++c) total += std::exp(row[c] - top), plain += row[c];
    const bool outside = t < 0 || t >= is.width;
    const double lse = outside ? kNan : top + std::log(total);
    double loss = lse - (1 - is.smoothing) * (outside ? 0 : row[t]) + is.z * lse * lse;
    if (is.smoothing > 0) loss -= smooth * plain;
    want.loss.push_back(loss);
    for (int64_t c = 0; c < is.width; ++c) {
      const double hit = c == t ? 1 - is.smoothing : 0;
      const double p = outside ? kNan : std::exp(row[c] - top) / total;
      const double g = p * (1 + 2 * is.z * lse) - hit - smooth;
      want.gradient.push_back(g * (is.scaled ? dloss[2 * r] : 1) / (is.counted ? count : 1));
    }
  }
  return want;
}

// Whether the target that was told is one of those that are no columns; 0 if there are none.
void check_told(const problem& is, const std::vector<int64_t>& aims, int64_t told) {
  std::vector<int64_t> right;
  for (const int64_t t : aims) {
    if (is.asked && t != kIgnored && (t < 0 || t >= is.width)) right.push_back(t);
  }
  if (right.empty()) right.push_back(0);
  if (std::find(right.begin(), right.end(), told) != right.end()) return;
  fail("outside", 0, "is " + std::to_string(told));
}

template <class T>
void make_far(const problem& is, std::vector<T>& xs) {
  for (int64_t r = 0; r < is.rows; ++r) {
    for (int64_t c = 0; c < is.width; ++c) {
      T& x = xs[is.offset + r * is.stride + c];
      const float near = kittens::convert<float>(x);
      const bool below = r % 4 == 2 && c < is.width * 3 / 4;
      if (r % 4 < 2) x = kittens::convert<T>(near * (r % 4 == 0 ? 0x1p31f : 0x1p124f));
      if (below) x = kittens::convert<T>(-1e10f * static_cast<float>(1 + c % 7));
    }
    // Two are the largest.
    if (r % 4 == 0) xs[is.offset + r * is.stride + is.width / 2] = kittens::convert<T>(0x1p35f);
    if (r % 4 == 0) xs[is.offset + r * is.stride + is.width - 2] = kittens::convert<T>(0x1p35f);
  }
}

template <class T>
void check(const problem& is) {
  auto xs = normal_values<T>(is.offset + is.rows * is.stride, 1, 0, 2);
  if (is.far) make_far(is, xs);
  // A column of −inf.
  for (int64_t r = 0; r < is.rows && is.smoothing == 0; ++r) {
    xs[is.offset + r * is.stride + is.width / 3] = kittens::convert<T>(-INFINITY);
  }
  if (is.nan_row >= 0) xs[is.offset + is.nan_row * is.stride] = kittens::convert<T>(NAN);
  for (int64_t c = 0; is.empty_row >= 0 && c < is.width; ++c) {
    xs[is.offset + is.empty_row * is.stride + c] = kittens::convert<T>(-INFINITY);
  }
  std::vector<int64_t> aims;
  std::vector<int> narrow;
  for (int64_t r = 0; r < is.rows; ++r) {
    aims.push_back(target_of(is, r));
    narrow.push_back(static_cast<int>(aims.back()));
  }
  std::vector<int64_t> parts(kCrossEntropyParts);
  for (int i = 0; i < kCrossEntropyParts; ++i) parts[i] = i % 3;
  const auto dlosses = normal_values<float>(2 * is.rows, 3);
  const buffer<T> x(xs), apart(is.gradient_offset + is.rows * is.stride);
  const buffer<int64_t> targets_of_int64(aims), counts(parts);
  const buffer<int> targets_of_int32(narrow);
  const buffer<float> loss(is.rows), dloss(dlosses), total(1);
  const buffer<unsigned> mailboxes(std::vector<unsigned>(is.rows));
  const buffer<int64_t> outside(std::vector<int64_t>(1));
  T* gradient = is.in_place ? x.data() + is.offset : apart.data() + is.gradient_offset;
  const void* targets = targets_of_int64.data();
  run_forward(is.form, {.logits = x.data() + is.offset,
                        .targets = is.int64_targets ? targets : targets_of_int32.data(),
                        .gradient = is.gradient ? gradient : nullptr,
                        .loss = is.loss ? loss.data() : nullptr,
                        .total = is.totalled ? total.data() : nullptr,
                        .mailboxes = is.totalled ? mailboxes.data() : nullptr,
                        .counts = is.counted && !is.totalled ? counts.data() : nullptr,
                        .dloss = is.scaled ? dloss.data() : nullptr,
                        .outside = is.asked ? outside.data() : nullptr,
                        .rows = is.rows,
                        .width = is.width,
                        .stride = is.stride,
                        .gradient_stride = is.stride,
                        .dloss_stride = 2,
                        .ignore_index = kIgnored,
                        .label_smoothing = static_cast<float>(is.smoothing),
                        .z_loss = static_cast<float>(is.z),
                        .int64_targets = is.int64_targets,
                        .mean = is.counted,
                        .type = std::is_same_v<T, float> ? dtype::float32 : dtype::bfloat16});
  double count = 31;  // of the parts
  if (is.totalled) count = static_cast<double>(is.rows - is.rows / 4);
  const outputs want = compute(is, doubles(xs), aims, count, doubles(dlosses));
  const double slack = 64 * unit<float>();
  if (is.loss) check_all("loss", loss.get(), want.loss, slack, slack * (1 + 10 * is.z));
  if (is.totalled) {
    const double sum = std::accumulate(want.loss.begin(), want.loss.end(), 0.0);
    check_all("total", total.get(), {is.counted ? sum / count : sum}, slack, 0);
    const std::vector<unsigned> left = mailboxes.get();
    check_all("mailboxes", std::vector<float>(left.begin(), left.end()),
              std::vector<double>(left.size()), 0, 0);
  }
  check_told(is, aims, outside.get()[0]);
  const auto all = doubles((is.in_place ? x : apart).get());
  if (!is.gradient) return check_all("logits", x.get(), doubles(xs), 0, 0);
  const int64_t first = is.in_place ? is.offset : is.gradient_offset;
  std::vector<float> got;
  for (int64_t r = 0; r < is.rows; ++r) {
    const double* row = &all[first + r * is.stride];
    got.insert(got.end(), row, row + is.width);
  }
  check_all("gradient", got, want.gradient, unit<T>() + slack, slack * (1 + is.z) * 4);
}

using enum forward_form;

}  // namespace
