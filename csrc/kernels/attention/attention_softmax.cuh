// attention, forward: the softmax of a consumer's rows, in registers. (attention_forward.cuh)
#pragma once

#include <limits>

#include "kernels/attention/attention_tile.cuh"

namespace thunderkittens::inline KITTENS_TARGET {

template <class Config>
class attention_softmax {
 protected:
  using column = typename rt_fl<16, Config::keys>::col_vec;  // one value per row
  using output = rt_fl<16, Config::head_dim>;
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();
  // A row is rescaled when the sum of a lane's part of a block is above this, so that p fits fp16 …
  static constexpr float kLargeSum = 256.0f;
  // … or, of the whole row in bf16 alone, above this, long before floats overflow.
  static constexpr float kLargeRow = 0x1p60f;

  const attention_forward_tensors<Config>& p;
  const int w;
  attention_tile tile;
  typename Config::o_accumulator o;
  column m, l;  // reference of the exponents in units of log₂, and this lane's part of Σ p

  KITTENS_DEVICE attention_softmax(const attention_forward_tensors<Config>& p, int w)
      : p(p), w(w) {}

  // The first of this warpgroup's rows in the sequence, and of this warp's sixteen.
  KITTENS_DEVICE int warpgroup_row() const { return tile.m * Config::rows + w * 64; }
  KITTENS_DEVICE int warp_row() const { return warpgroup_row() + arch::warp_id() % 4 * 16; }

  // s = tanh(s · scale / softcap). The approximation of tanh itself would lose half of bf16's bits.
  template <class S>
  KITTENS_DEVICE void cap(S& s) {
    if constexpr (Config::capped) {
      const float c = p.cap * 2.885390082f;  // 2 log₂e: tanh x = 1 − 2 / (1 + exp 2x)
      map(
          [=](float x) {
            return 1.0f - 2.0f * arch::reciprocal_approx(1.0f + arch::exp2_approx(x * c));
          },
          s, s);
    }
  }
  // The key on the diagonal of this warp's first row, counted from `first_key`.
  KITTENS_DEVICE int diagonal(int first_key) const {
    return warp_row() + tile.keys - tile.rows - first_key;
  }
  // Hides the keys, from `first_key` on, that do not exist, or that this warp's rows do not see …
  template <class S>
  KITTENS_DEVICE void mask(S& s, int first_key) {
    right_fill(s, s, tile.keys - first_key, kHidden);
    tril(s, s, diagonal(first_key) + p.right, kHidden);
    mask_left(s, first_key);
  }
  // … because they lie too far to the left.
  template <class S>
  KITTENS_DEVICE void mask_left(S& s, int first_key) {
    triu(s, s, diagonal(first_key) - p.left, kHidden);
  }

  // s → p in place, m, l; `correction` is what o is to be multiplied with. A row that has seen no
  // key yet has m = −inf; its p is then exp2(−inf) = 0.
  template <class S>
  KITTENS_DEVICE void careful_softmax(S& s, column& correction) {
    const float c = p.scale_log2;
    column top, reference;
    row_max(top, s);
    copy(correction, m);
    map([=](float x, float y) { return fmaxf(x, y * c); }, m, m, top);
    map([](float x) { return x == kHidden ? 0.0f : x; }, reference, m);
    map([](float x, float y) { return arch::exp2_approx(x - y); }, correction, correction,
        reference);
    map_rows([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, s, s, reference);
    if constexpr (Config::sums) {
      mul(l, l, correction);
      partial_row_sum(l, s, l);
    }
  }

  // The same with m as it is; `sum` is this lane's part of Σ p, where that is wanted.
  template <class S>
  KITTENS_DEVICE void fast_softmax(S& s, column& sum) {
    const float c = p.scale_log2;
    map_rows([=](float x, float y) { return arch::exp2_approx(fmaf(x, c, -y)); }, s, s, m);
    zero(sum);
    if constexpr (Config::sums) partial_row_sum(sum, s, sum);
  }
  // And then, once o is there, what became large is rescaled.
  template <class S>
  KITTENS_DEVICE void settle(S& s, column& sum) {
    if constexpr (!Config::sums) row_sums_of(sum, o);
    const float large = Config::sums ? kLargeSum : kLargeRow;
    column is_large;
    map([=](float x) { return x <= large ? 0.0f : 1.0f; }, is_large, sum);  // 1 for NaN
    if (arch::vote_any(is_large.data[0].words[0] + is_large.data[1].words[0] != 0.0f)) {
      rebase(s, sum, is_large);
    }
    if constexpr (Config::sums) add(l, l, sum);
  }

  // o's rows, divided by their sums, sinks counted; and lse in l.
  KITTENS_DEVICE void finish(output& result) {
    column inverse;
    if constexpr (Config::fast) {
      row_sums_of(inverse, o);
    } else {
      copy(inverse, l);
    }
    map([](float x) { return x == 0.0f ? 0.0f : 1.0f / x; }, inverse, inverse);
    if constexpr (Config::sums) count_sinks(inverse);
#pragma unroll
    for (int i = 0; i < Config::head_dim / 2; ++i) result.data[0][i] = o.data[0][i];
    mul_row(result, result, inverse);
  }

 private:
  // l, the sums, becomes lse; `inverse`, what o is multiplied with, takes a sink into account.
  KITTENS_DEVICE void count_sinks(column& inverse) {
    map([](float x, float sum) { return x + log2f(sum); }, l, m, l);  // in units of log₂
    if (p.sinks != nullptr) {
      const float sink = p.sinks[tile.head] * 1.442695041f;
      map(
          [=](float x, float log_sum) {
            return log_sum == kHidden ? 0.0f : x / (1.0f + exp2f(sink - log_sum));
          },
          inverse, inverse, l);
      map(
          [=](float log_sum) {
            const float top = fmaxf(sink, log_sum);
            return top == kHidden ? kHidden : top + log2f(exp2f(sink - top) + exp2f(log_sum - top));
          },
          l, l);
    }
    map([](float x) { return x * 0.6931471806f; }, l, l);
  }

  // Moves the reference of the rows that have grown large, and rescales what depends on it. Each
  // row by itself: the factor of the others is 1.
  template <class S>
  KITTENS_DEVICE void rebase(S& s, column& sum, column& is_large) {
    column top, factor;
    if constexpr (Config::sums) {
      row_max(top, s);
      finish_row_sum(is_large);
    } else {
      copy(top, sum);
    }
    constexpr float kInf = std::numeric_limits<float>::infinity();
    map([=](float x, float large) { return large > 0.0f && x < kInf ? 1.0f / x : 1.0f; }, factor,
        top, is_large);
    map([](float x, float f) { return x - log2f(f); }, m, m, factor);
    mul_row(s, s, factor);
    mul_row(o, o, factor);
    if constexpr (Config::sums) {
      mul(sum, sum, factor);
      mul(l, l, factor);
    }
  }
};

}  // namespace thunderkittens::inline KITTENS_TARGET
