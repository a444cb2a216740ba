// attention, backward: p and ds of a warp's keys, in registers. (attention_backward.cuh)
#pragma once

#include <limits>

#include "kernels/attention/attention_backward_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// [keys, rows]: a warp's keys, any rows of a block.
template <int Rows, bool Capped>
struct attention_backward_softmax {
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();
  using row_pair = attention_row_block<Rows>::row_pair;

  const attention_backward_call<Rows>& p;

  // s becomes p; with a softcap, its tanh. From `key` and `row` of the tile's sequence on.
  template <class S>
  KITTENS_DEVICE void softmax(S& s, const attention_backward_tile& tile, int key, int row,
                              const row_pair* rows) const {
    if constexpr (Capped) p.softcap.cap(s);
    mask(s, tile, key, row);
    if constexpr (!Capped) {
      each_number(s, rows, [&](int line, int i, float lse, float) {
        s.data[line][i] = weight(s.data[line][i], lse);
      });
    }
  }
  // dp becomes ds, and s becomes p if it is not.
  template <class S>
  KITTENS_DEVICE void gradient(S& dp, S& s, const row_pair* rows) const {
    each_number(s, rows, [&](int line, int i, float lse, float delta) {
      float& x = s.data[line][i];
      float& gradient = dp.data[line][i];
      if constexpr (Capped) {
        const float of_tanh = attention_softcap::slope(x);
        x = weight(x, lse);
        gradient = x * of_tanh * (gradient - delta);
      } else {
        gradient = x * (gradient - delta);
      }
    });
  }

  // With a softcap: s, tanh, becomes p times the slope there, and `weights` p.
  template <class S, class W>
  KITTENS_DEVICE void weights(S& s, W& weights, const row_pair* rows) const {
#pragma unroll
    for (int i = 0; i < S::cols / 8; ++i) {
      const float4 pair = pair_of(rows, i);
#pragma unroll
      for (int line = 0; line < S::lines; ++line) {
#pragma unroll
        for (int half = 2 * (i % 2); half < 2 * (i % 2) + 2; ++half) {
          float x, y;
          s.get(x, y, line, i / 2, half);
          const float of_x = weight(x, pair.x), of_y = weight(y, pair.y);
          weights.set(line, i / 2, half, of_x, of_y);
          s.set(line, i / 2, half, of_x * attention_softcap::slope(x),
                of_y * attention_softcap::slope(y));
        }
      }
    }
  }
  // dp becomes ds, by what another warp has left of p, or of that product.
  template <class S, class Factors>
  KITTENS_DEVICE void gradient(S& dp, const Factors& factors, const row_pair* rows) const {
#pragma unroll
    for (int i = 0; i < S::cols / 8; i += 2) {
      const float4 pairs[2] = {pair_of(rows, i), pair_of(rows, i + 1)};
#pragma unroll
      for (int line = 0; line < S::lines; ++line) {
        const auto weights = factors.load(line, i / 2);
#pragma unroll
        for (int half = 0; half < 4; ++half) {
          float p_x, p_y, x, y;
          weights.get(p_x, p_y, half);
          dp.get(x, y, line, i / 2, half);
          dp.set(line, i / 2, half, p_x * (x - pairs[half / 2].z), p_y * (y - pairs[half / 2].w));
        }
      }
    }
  }

 private:
  KITTENS_DEVICE float weight(float logit, float lse) const {
    return arch::exp2_approx(fmaf(logit, p.scale_log2, -lse));
  }
  // Of columns 8 · i and on, this lane's two.
  KITTENS_DEVICE static float4 pair_of(const row_pair* rows, int i) {
    return *reinterpret_cast<const float4*>(&rows[4 * i + arch::lane_id() % 4]);
  }
  // Hides what a row does not see, and the keys that do not exist.
  template <class S>
  KITTENS_DEVICE void mask(S& s, const attention_backward_tile& tile, int key, int row) const {
    const int diagonal = key - row - (tile.keys - tile.rows);
    // Most tiles have nothing to hide: one branch, not three.
    if (tile.keys - key >= S::rows && diagonal - p.right <= 1 - S::rows &&
        diagonal + p.left >= S::cols - 1) {
      return;
    }
    lower_fill(s, s, tile.keys - key, kHidden);
    triu(s, s, diagonal - p.right, kHidden);
    tril(s, s, diagonal + p.left, kHidden);
  }
  // Calls f(line, i, lse, delta) of each of this lane's numbers, and of its row.
  template <class S, class F>
  KITTENS_DEVICE static void each_number(const S&, const row_pair* rows, F f) {
#pragma unroll
    for (int c = 0; c < S::cols / 8; ++c) {  // eight rows, two of this lane: one pair, one access
      const float4 pair = pair_of(rows, c);
#pragma unroll
      for (int line = 0; line < S::lines; ++line) {
        f(line, 4 * c, pair.x, pair.z);
        f(line, 4 * c + 1, pair.y, pair.w);
        f(line, 4 * c + 2, pair.x, pair.z);
        f(line, 4 * c + 3, pair.y, pair.w);
      }
    }
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
