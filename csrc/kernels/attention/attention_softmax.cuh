// attention: the softmax of 16 rows, in the registers of a warp. (attention_forward.cuh)
#pragma once

#include <limits>

#include "kernels/attention/attention_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// The keys that 16 rows see.
struct attention_mask {
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();

  int diagonal;     // the first row's key on the diagonal
  int keys;         // of the sequence
  int left, right;  // how far a row sees from its diagonal

  // Hides the keys of s, from `first_key` on, that do not exist, or that its rows do not see …
  template <class S>
  KITTENS_DEVICE void hide(S& s, int first_key) const {
    right_fill(s, s, keys - first_key, kHidden);
    tril(s, s, diagonal - first_key + right, kHidden);
    hide_left(s, first_key);
  }
  // … because they lie too far to the left.
  template <class S>
  KITTENS_DEVICE void hide_left(S& s, int first_key) const {
    triu(s, s, diagonal - first_key - left, kHidden);
  }
};

// What the softmax of the rows needs from one block of keys to the next. The scores s of a block,
// and o, are the caller's. Config says
//
//   value_dim         how many columns o has
//   ones_beside_v     … and that a row's sum is in those behind them
//   sums              whether l, and so lse, is wanted
//   capped            whether a softcap bounds s: no row is far then
template <class Config>
struct attention_softmax {
  using column = rt_fl<16, 16>::col_vec;  // one value per row
  static constexpr float kHidden = attention_mask::kHidden;
  // A row is rescaled when the sum of a lane's part of a block is above this, so that p fits fp16 …
  static constexpr float kLargeSum = 256.0f;
  // … or, of the whole row in bf16 alone, above this, long before floats overflow.
  static constexpr float kLargeRow = 0x1p60f;
  // A reference m · c is far from here on: rounding it would move p by more than √2.
  static constexpr float kFar = 0x1p24f, kMaybeFar = 0x1p23f;

  float scale;       // what takes s to logits
  float scale_log2;  // … in units of log₂
  // The rows' reference: online steps take their largest s, fixed ones m · c, in units of log₂ (see
  // `fix_reference`). And this lane's part of Σ p.
  column m, l;

  KITTENS_DEVICE void start() {
    zero(l);
    neg_infty(m);
  }

  // s → p in place, m, l; `correction` is what o is to be multiplied with. A row that has seen no
  // key yet has m = −inf; its p is then exp2(−inf) = 0.
  template <class S>
  KITTENS_DEVICE void online(S& s, column& correction) {
    column top;
    row_max(top, s);
    raise(s, top, correction);
  }

  // The same for the rows whose `sum`, of `steady`, is large in a lane, or that are far. The others
  // keep their m, and so their bits, whatever their neighbours are.
  template <class S>
  KITTENS_DEVICE void online_where_large(S& s, const column& sum, column& correction) {
    const float c = scale_log2;
    column moves, top;
    map([=](float x, float y) { return serves(x * c) && y <= kLargeSum ? 0.0f : 1.0f; }, moves, m,
        sum);
    finish_row_sum(moves);
    row_max(top, s);
    map([](float x, float y, float z) { return z == 0.0f ? x : y; }, top, m, top, moves);
    raise(s, top, correction);
  }

  // s → p between online steps, by the reference that these left, and `sum`, this lane's part of
  // Σ p: of use where `is_steady`, and where the sum is not large.
  template <class S>
  KITTENS_DEVICE void steady(S& s, column& sum) const {
    const float c = scale_log2;
    column reference;
    map([=](float x) { return arch::mul_rounded(x, c); }, reference, m);
    map_rows([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, s, s, reference);
    zero(sum);
    partial_row_sum(sum, s, sum);
  }
  // Whether both of this lane's rows have seen a key, and none is far.
  KITTENS_DEVICE bool is_steady() const {
    return serves(m.data[0].words[0] * scale_log2) && serves(m.data[1].words[0] * scale_log2);
  }
  KITTENS_DEVICE static bool is_large(const column& sum) {  // NaN is, too
    return !(sum.data[0].words[0] <= kLargeSum && sum.data[1].words[0] <= kLargeSum);
  }

  // Before the fixed steps: m in units of log₂. A far row's p is 0 from here on, and
  // `overflowed` finds it: with its m rounded, the largest p could be anything.
  KITTENS_DEVICE void fix_reference() {
    const float c = scale_log2;
    map(
        [=](float x) {
          const float reference = arch::mul_rounded(x, c);
          return fabsf(reference) < kFar ? reference : std::numeric_limits<float>::infinity();
        },
        m, m);
  }

  // The same with m as it is; `sum` is this lane's part of Σ p, where that is wanted.
  template <class S>
  KITTENS_DEVICE void fixed(S& s, column& sum) const {
    const float c = scale_log2;
    map_rows([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, s, s, m);
    zero(sum);
    if constexpr (Config::sums) partial_row_sum(sum, s, sum);
  }
  // And then, once o is there, what became large is rescaled.
  template <class S, class O>
  KITTENS_DEVICE void rescale_if_large(S& s, O& o, column& sum) {
    if constexpr (!Config::sums) row_sums_of(sum, o);
    const float large = Config::sums ? kLargeSum : kLargeRow;
    column is_large;
    map([=](float x) { return x <= large ? 0.0f : 1.0f; }, is_large, sum);  // 1 for NaN
    if (arch::vote_any(is_large.data[0].words[0] + is_large.data[1].words[0] != 0.0f)) {
      rebase(s, o, sum, is_large);
    }
    if constexpr (Config::sums) add(l, l, sum);
  }

  // Whether this lane's rows overflowed after fixed steps, or are far, as two bits.
  template <class O>
  KITTENS_DEVICE uint32_t overflowed(const O& o) const {
    // NaN where an element of o, or of the sums in it, is not finite.
    float is_finite[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < Config::value_dim / 2 + 4; ++i) {
      is_finite[i / 2 % 2] = fmaf(o.data[0][i], 0.0f, is_finite[i / 2 % 2]);
    }
    column bad;
    bad.data[0].set({is_finite[0]});
    bad.data[1].set({is_finite[1]});
    map(
        [](float x, float sum, float reference) {
          return x == 0.0f && sum < 0x1p120f && reference < kFar ? 0.0f : 1.0f;
        },
        bad, bad, l, m);
    finish_row_sum(bad);
    return (bad.data[0].words[0] != 0.0f ? 1 : 0) | (bad.data[1].words[0] != 0.0f ? 2 : 0);
  }

  // The result: o's rows, divided by their sums; and lse in l. `sinks`, of the heads, count in both
  // if they are not null. `was_fixed`: m is in units of log₂.
  template <class R, class O>
  KITTENS_DEVICE void finish(R& result, const O& o, const float* sinks, int head, bool was_fixed) {
    column inverse;
    if constexpr (Config::ones_beside_v) {
      row_sums_of(inverse, o);
    } else {
      copy(inverse, l);
    }
    map([](float x) { return x == 0.0f ? 0.0f : 1.0f / x; }, inverse, inverse);
    if constexpr (Config::sums) count_sinks(inverse, sinks, head, was_fixed ? kLn2 : scale);
#pragma unroll
    for (int i = 0; i < Config::value_dim / 2; ++i) result.data[0][i] = o.data[0][i];
    mul_row(result, result, inverse);
  }

 private:
  // Whether a reference may stay while s changes: it is not far, and there is one.
  KITTENS_DEVICE static bool serves(float reference) { return fabsf(reference) < kMaybeFar; }

  // s → p by m, raised to at least `top`.
  template <class S>
  KITTENS_DEVICE void raise(S& s, const column& top, column& correction) {
    const float c = scale_log2;
    column old, reference;
    copy(old, m);
    max(m, m, top);
    map([=](float x) { return x == kHidden ? 0.0f : arch::mul_rounded(x, c); }, reference, m);
    map([=](float x, float y) { return x == kHidden ? 0.0f : arch::mul_rounded(x, c) - y; },
        correction, old, reference);
    if constexpr (!Config::capped) {  // the largest softcap is not far
      if (any_is_far(reference, correction)) take_far_rows(s, old, reference, correction);
    }
    map([](float x) { return arch::exp2_approx(x); }, correction, correction);
    map_rows([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, s, s, reference);
    if constexpr (Config::sums) {
      mul(l, l, correction);
      partial_row_sum(l, s, l);
    }
  }

  // Whether a row of the warp's may be far, or may have been. `shift` is by how much its reference
  // has moved: below 2²³ both, so that the old one was below 2²⁴.
  KITTENS_DEVICE static bool any_is_far(const column& reference, const column& shift) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest =
          fmaxf(largest, fmaxf(fabsf(reference.data[i].words[0]), fabsf(shift.data[i].words[0])));
    }
    return arch::vote_any(largest >= kMaybeFar);
  }

  // The far rows: p = exp2((s − m) · c), where the fma of s · c with the rounded m · c would leave
  // what rounding took off, which no longer is small. s becomes s − m, and `reference` 0. From 2²⁴
  // on neighbouring s · c are so far apart that nothing is lost: either is m, or its p is small.
  template <class S>
  KITTENS_DEVICE void take_far_rows(S& s, const column& old, column& reference,
                                    column& correction) const {
    const float c = scale_log2;
    const auto is_far = [=](float x) {
      return x != kHidden && !(fabsf(arch::mul_rounded(x, c)) < kFar);
    };
    column base;  // m of a far row, 0 of any other
    map([=](float x) { return is_far(x) ? x : 0.0f; }, base, m);
    map([](float x, float b) { return b == 0.0f ? x : 0.0f; }, reference, reference, base);
    // From the old base and reference to the new ones; those of a row that is not far as usual.
    map(
        [=](float x, float b, float y) {
          return is_far(x) ? fmaf(x - b, c, -y) : fmaf(-b, c, arch::mul_rounded(x, c) - y);
        },
        correction, old, base, reference);
    sub_row(s, s, base);
  }

  // l, the sums, becomes lse = m · unit + log l; `inverse`, what o is multiplied with, takes the
  // sink into account.
  KITTENS_DEVICE void count_sinks(column& inverse, const float* sinks, int head, float unit) {
    if (sinks == nullptr) {
      map([=](float x, float sum) { return fmaf(x, unit, log2f(sum) * kLn2); }, l, m, l);
      return;
    }
    const float sink = sinks[head];
    column excess;  // of the sink's weight over the sum, in units of log₂
    map([=](float x, float sum) { return fmaf(-x, unit, sink) * kLog2e - log2f(sum); }, excess, m,
        l);
    map([](float x, float y) { return x == 0.0f ? 0.0f : x / (1.0f + exp2f(y)); }, inverse, inverse,
        excess);
    map(
        [=](float x, float sum, float y) {
          if (sum == 0.0f || y > 40.0f) return sink;
          return fmaf(x, unit, (log2f(sum) + log2f(1.0f + exp2f(y))) * kLn2);
        },
        l, m, l, excess);
  }

  // Moves the reference of the rows that have grown large, and rescales what depends on it. Each
  // row by itself: the factor of the others is 1.
  template <class S, class O>
  KITTENS_DEVICE void rebase(S& s, O& o, column& sum, column& is_large) {
    column top, rise, moved, factor;
    if constexpr (Config::sums) {
      row_max(top, s);
      finish_row_sum(is_large);
    } else {
      copy(top, sum);
    }
    constexpr float kInf = std::numeric_limits<float>::infinity();
    map([=](float x, float large) { return large > 0.0f && x < kInf ? log2f(x) : 0.0f; }, rise, top,
        is_large);
    add(moved, m, rise);  // rounded: the factor is that by which m really moves
    map([](float x, float y) { return x == y ? 1.0f : exp2f(x - y); }, factor, m, moved);
    copy(m, moved);
    mul_row(s, s, factor);
    mul_row(o, o, factor);
    if constexpr (Config::sums) {
      mul(sum, sum, factor);
      mul(l, l, factor);
    }
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
