// based_attention: the passes that give gradients. (based_attention.cuh)
#pragma once

#include "kernels/based_attention/based_attention_contraction.cuh"
#include "kernels/based_attention/based_attention_walk.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class gradient_walk : chunk_walk<Config> {
  using base = chunk_walk<Config>;
  using base::at, base::p, base::shared, base::state, base::stream, base::sums, base::kBarrier;
  using typename base::T;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    this->for_each_chunk([&](int token, float2 next) {
      differentiate(token);
      const auto v = this->transposed_values();
      this->add_to_sums(token);
      arch::fence_async_proxy();  // it has read the keys
      warpgroup::sync(kBarrier);  // all have read the chunk, the state and the factors
      this->add_to_state(v);
      this->store_factors(next);
      warpgroup::mma_async_wait<0>(state);
      if (this->signals()) shared.chunks.release_after_mma(at);
      this->publish_state();
      warpgroup::sync(kBarrier);
      if (this->signals()) store_results(token);
    });
    if (this->signals()) tma::store_async_read_wait<0>();
  }

 private:
  using scores = rt_fl<16, kChunk>;
  using weights = rt<T, 16, kChunk>;
  using key_gradients = rt_fl<16, kKeys>;

  KITTENS_DEVICE void store_results(int token) {
    const sequence_origin origin = sequence_origin::of(stream.batch);
    if (Config::gives_values && p.wants_o) {
      tma::store_async(p.o, shared.o, origin, token, stream.head);
    }
    if (p.wants_key_gradients) {
      tma::store_async(p.key_gradients, shared.key_gradients, origin, token, stream.head);
    }
    tma::store_commit_group();
  }

  // What a chunk gives, into shared memory.
  KITTENS_DEVICE void differentiate(int token) {
    this->store_features();  // by itself: beside scores it would spill
    scores s, d;             // of rows and keys; of their values
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.row_keys[at.stage], shared.keys[at.stage]);
    warpgroup::mm_ABt(d, shared.row_values[at.stage], shared.values[at.stage]);
    warpgroup::mma_commit_group();
    rt<T, 16, kKeys> x;
    load_fragment<false>(x.data[0], shared.row_keys[at.stage], this->warp_row(), 0);
    if (this->signals()) tma::store_async_read_wait<0>();
    warpgroup::mma_async_wait<0>(s, d);
    warpgroup::sync(kBarrier);  // what was stored last has left shared memory
    if constexpr (Config::reverse) {
      differentiate_keys(s, d, x);
    } else {
      differentiate_queries(s, d, x, token);
    }
  }

  // f(this lane's element of s, of d, its place, whether its weight counts), of each.
  template <class F>
  KITTENS_DEVICE static void for_each(scores& s, scores& d, F f) {
    const int lane = arch::lane_id();
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      const int row = base::warp_row() + scores::across(0, i / 2 % 4, lane);
      const int column = scores::along(i / 8, i / 2 % 4, lane) + i % 2;
      f(s.data[0][i], d.data[0][i], i, Config::reverse ? column >= row : column <= row);
    }
  }

  // dq(i) = factor(i) · (scale · Σ(j) (do(i) · v(j)) (1 + s) k(j) + dφ/dq · S do(i))
  //         + dD(i) · (scale · Σ(j) (1 + s) k(j) + the gradient of the sums)
  //
  // with factor = 1 / (D + eps), and dD, the gradient of the denominator D, −do · o · factor, where
  // do · o is made of what dq is made of: Σ A (do · v) + φ · dφ.
  KITTENS_DEVICE void differentiate_queries(scores& s, scores& d, const rt<T, 16, kKeys>& q,
                                            int token) {
    const float scale = p.scale, square = 0.5f * scale * scale;
    float row_sums[2] = {}, inner[2] = {};
    for_each(s, d, [&](float& x, float& product, int i, bool counts) {
      const float slope = counts ? fmaf(scale, x, 1.0f) : 0.0f;
      const float weight = counts ? fmaf(fmaf(square, x, scale), x, 1.0f) : 0.0f;
      row_sums[i / 2 % 2] += weight;
      inner[i / 2 % 2] = fmaf(weight, product, inner[i / 2 % 2]);
      x = product * slope;
      product = slope;
    });
    weights with_products, alone;
    copy(with_products, s);
    copy(alone, d);
    key_gradients direct, through;
    warpgroup::mma_fence(with_products, alone);
    warpgroup::mm_AB(direct, with_products, shared.keys[at.stage]);
    warpgroup::mm_AB(through, alone, shared.keys[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(direct, through);
    mul(direct, direct, scale);
    contract(direct, inner, q);
    if (p.normalize) {
      float of_sums[2];
      sums.weigh(of_sums, q, scale);
      key_gradients gradient;
      sums.differentiate(gradient, q, scale);
      float factors[2], of_denominator[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float denominator = sum_of_row(row_sums[half] + of_sums[half]) + p.eps;
        factors[half] = 1 / denominator;
        of_denominator[half] = -sum_of_row(inner[half]) * factors[half] * factors[half];
        if (arch::lane_id() % 4 == 0) {
          const int row = base::warp_row() + half * 8 + arch::lane_id() / 4;
          arch::store_global(p.factors + this->factor_row(token) + row,
                             float2{factors[half], of_denominator[half]});
        }
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float y = fmaf(scale, through.data[0][i], gradient.data[0][i]);
        direct.data[0][i] =
            fmaf(factors[i / 2 % 2], direct.data[0][i], of_denominator[i / 2 % 2] * y);
      }
    }
    warpgroup::store(shared.key_gradients, direct);
  }

  // dv(j) = Σ(i) A factor(i) do(i) + dSᵀ φ(k(j))
  // dk(j) = scale · Σ(i) (factor(i) do(i) · v(j) + dD(i)) (1 + s) q(i) + dφ/dk · dS v(j)
  //         + the gradient of the sums
  KITTENS_DEVICE void differentiate_keys(scores& s, scores& d, const rt<T, 16, kKeys>& k) {
    const float scale = p.scale, square = 0.5f * scale * scale;
    typename base::of_tokens factors, of_denominator;
    if (p.normalize) {
      load(factors, shared.factors[0]);
      load(of_denominator, shared.factors[1]);
    } else {
      one(factors);
      zero(of_denominator);
    }
    for_each(s, d, [&](float& x, float& product, int i, bool counts) {
      float factor[2], gradient[2];
      factors.data[i / 8 * 2 + i / 4 % 2].get(factor);
      of_denominator.data[i / 8 * 2 + i / 4 % 2].get(gradient);
      const float slope = counts ? fmaf(scale, x, 1.0f) : 0.0f;
      const float weight = counts ? fmaf(fmaf(square, x, scale), x, 1.0f) : 0.0f;
      x = weight * factor[i % 2];
      product = fmaf(product, factor[i % 2], gradient[i % 2]) * slope;
    });
    weights of_values, of_keys;
    copy(of_values, s);
    copy(of_keys, d);
    rt<T, 16, kColumns> features;
    make_features(features, k);
    rt_fl<16, kValues> dv;
    key_gradients dk;
    warpgroup::mma_fence(features, of_values, of_keys);
    warpgroup::mm_ABt(dv, features, shared.state);
    warpgroup::mma_AB(dv, of_values, shared.values[at.stage]);
    warpgroup::mm_AB(dk, of_keys, shared.keys[at.stage]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(dv, dk);
    warpgroup::store(shared.o, dv);
    mul(dk, dk, scale);
    float unused[2] = {};
    contract(dk, unused, k);
    if (p.normalize) {
      key_gradients gradient;
      sums.differentiate(gradient, k, scale);
      add(dk, dk, gradient);
    }
    warpgroup::store(shared.key_gradients, dk);
  }

  // Adds the gradient of the rows' keys from that of their features, which is the state times their
  // values; and to `inner` this lane's part of Σ φ dφ.
  KITTENS_DEVICE void contract(key_gradients& gradient, float (&inner)[2],
                               const rt<T, 16, kKeys>& x) {
    using slice_tile = st<T, kValues, kSlice>;
    static_assert(slice_tile::swizzle_bytes == Config::state_tile::swizzle_bytes);
    rt<T, 16, kValues> values;
#pragma unroll
    for (int i = 0; i < kValues / 16; ++i) {
      load_fragment<false>(values.data[0] + 4 * i, shared.row_values[at.stage], base::warp_row(),
                           i * 16);
    }
    feature_contraction<T> rows[2] = {{x.data[0][0], x.data[0][2]}, {x.data[0][1], x.data[0][3]}};
    constexpr int kSlices = kColumns / kSlice;
    rt_fl<16, kSlice> d[2];
    const auto ask = [&](int slice) {
      warpgroup::mma_fence(values);
      warpgroup::mm_AB(
          d[slice % 2], values,
          reinterpret_cast<const slice_tile&>(shared.state.data[slice * slice_tile::num_elements]));
      warpgroup::mma_commit_group();
    };
    ask(0);
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      if (slice + 1 < kSlices) {
        ask(slice + 1);
        warpgroup::mma_async_wait<1>(d[slice % 2]);
      } else {
        warpgroup::mma_async_wait<0>(d[slice % 2]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows[half].add(slice, [&](int group) -> typename feature_contraction<T>::pair {
          const int at = 4 * group + 2 * half;
          return {d[slice % 2].data[0][at], d[slice % 2].data[0][at + 1]};
        });
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      inner[half] += rows[half].inner();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto [a, b] = rows[half].gradient(i);
        gradient.data[0][4 * i + 2 * half] += a;
        gradient.data[0][4 * i + 2 * half + 1] += b;
      }
    }
  }

  KITTENS_DEVICE static float sum_of_row(float x) {
    x += arch::shuffle_xor(x, 1);
    return x + arch::shuffle_xor(x, 2);
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
