// based_attention: the passes that give gradients, of both kernels. (based_attention.cuh,
// based_attention_generic.cuh)
#pragma once

#include "kernels/based_attention/based_attention_contraction.cuh"
#include "kernels/based_attention/based_attention_states.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class gradient_walk : walk_of<Config> {
  using base = walk_of<Config>;
  using products = products_of<Config>;
  using base::at, base::p, base::shared, base::state, base::sums, base::kBarrier;
  using typename base::T;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    this->for_each_chunk([&](int token, float2 next) {
      differentiate(token);
      const auto v = this->transposed_values();
      this->add_to_sums(token);
      this->fence_reads();        // of the keys
      warpgroup::sync(kBarrier);  // all have read the chunk, the state and the factors
      this->add_to_state(v);
      this->store_factors(next);
      products::template mma_async_wait<0>(state);
      this->release();
      this->publish_state();
      this->meet();
      store_results(token);
    });
  }

 private:
  using scores = rt_fl<16, products::kPart>;
  using weights = rt<T, 16, products::kPart>;
  using key_gradients = rt_fl<16, kKeys>;

  KITTENS_DEVICE void store_results(int token) {
    if (Config::gives_values && p.wants_o) this->store_values(shared.o, token);
    if (p.wants_key_gradients) this->store_key_gradients(shared.key_gradients, token);
    this->end_results();
  }

  // What a chunk gives, into shared memory.
  KITTENS_DEVICE void differentiate(int token) {
    this->store_features();  // by itself: beside scores it would spill
    if constexpr (Config::reverse) {
      differentiate_keys();
    } else {
      differentiate_queries(token);
    }
  }

  // f(scores of rows and keys, and of their values, which part of the columns) for each part that
  // counts; x: this warp's rows of keys, which the kernel for Hopper loads meanwhile.
  template <class F>
  KITTENS_DEVICE void for_each_part(rt<T, 16, kKeys>& x, F f) {
    if constexpr (Config::generic) {
      const int own = base::warp_row() / products::kPart;
#pragma unroll 1
      for (int part = Config::reverse ? own : 0;
           part < (Config::reverse ? kChunk / products::kPart : own + 1); ++part) {
        rt<T, 16, kValues> values;  // again and again, for there are no registers left
        load_row_values(values);
        scores s, d;
        products::mm_ABt(s, x, products::part_of(shared.keys[at.stage], part));
        products::mm_ABt(d, values, products::part_of(shared.values[at.stage], part));
        f(s, d, part);
      }
    } else {
      scores s, d;
      products::mma_fence();
      products::mm_ABt(s, shared.row_keys[at.stage], shared.keys[at.stage]);
      products::mm_ABt(d, shared.row_values[at.stage], shared.values[at.stage]);
      products::mma_commit_group();
      load_row_keys(x);
      this->await_results();
      products::template mma_async_wait<0>(s, d);
      warpgroup::sync(kBarrier);  // what was stored last has left shared memory
      f(s, d, 0);
    }
  }
  KITTENS_DEVICE void load_row_keys(rt<T, 16, kKeys>& x) {
    load_fragment<false>(x.data[0], shared.row_keys[at.stage], base::warp_row(), 0);
  }
  KITTENS_DEVICE void load_row_values(rt<T, 16, kValues>& values) {
#pragma unroll
    for (int i = 0; i < kValues / 16; ++i) {
      load_fragment<false>(values.data[0] + 4 * i, shared.row_values[at.stage], base::warp_row(),
                           i * 16);
    }
  }

  // f(this lane's element of s, of d, its place, whether its weight counts), of each.
  template <class F>
  KITTENS_DEVICE static void for_each(scores& s, scores& d, int part, F f) {
    const int lane = arch::lane_id();
    const int first = part * products::kPart;
#pragma unroll
    for (int i = 0; i < products::kPart / 2; ++i) {
      const int row = base::warp_row() + scores::across(0, i / 2 % 4, lane);
      const int column = first + scores::along(i / 8, i / 2 % 4, lane) + i % 2;
      f(s.data[0][i], d.data[0][i], i, Config::reverse ? column >= row : column <= row);
    }
  }

  // dq(i) = factor(i) · (scale · Σ(j) (do(i) · v(j)) (1 + s) k(j) + dφ/dq · S do(i))
  //         + dD(i) · (scale · Σ(j) (1 + s) k(j) + the gradient of the sums)
  //
  // with factor = 1 / (D + eps), and dD, the gradient of the denominator D, −do · o · factor, where
  // do · o is made of what dq is made of: Σ A (do · v) + φ · dφ.
  KITTENS_DEVICE void differentiate_queries(int token) {
    const float scale = p.scale, square = 0.5f * scale * scale;
    float row_sums[2] = {}, inner[2] = {};
    key_gradients direct, through;
    rt<T, 16, kKeys> q;
    if constexpr (Config::generic) {
      zero(direct);
      zero(through);
      load_row_keys(q);
    }
    for_each_part(q, [&](scores& s, scores& d, int part) {
      for_each(s, d, part, [&](float& x, float& product, int i, bool counts) {
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
      products::mma_fence(with_products, alone);
      add_keys(direct, with_products, part);
      add_keys(through, alone, part);
      products::mma_commit_group();
      products::template mma_async_wait<0>(direct, through);
    });
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
    products::store(shared.key_gradients, direct);
  }

  // sum = weights · keys, or of parts sum += weights · their keys.
  KITTENS_DEVICE void add_keys(key_gradients& sum, const weights& w, int part) {
    if constexpr (Config::generic) {
      products::mma_AB(sum, w, products::part_of(shared.keys[at.stage], part));
    } else {
      products::mm_AB(sum, w, shared.keys[at.stage]);
    }
  }

  // dv(j) = Σ(i) A factor(i) do(i) + dSᵀ φ(k(j))
  // dk(j) = scale · Σ(i) (factor(i) do(i) · v(j) + dD(i)) (1 + s) q(i) + dφ/dk · dS v(j)
  //         + the gradient of the sums
  KITTENS_DEVICE void differentiate_keys() {
    const float scale = p.scale, square = 0.5f * scale * scale;
    rt_fl<16, kValues> dv;
    key_gradients dk;
    rt<T, 16, kKeys> k;
    if constexpr (Config::generic) {
      load_row_keys(k);
      rt<T, 16, kColumns> features;
      make_features(features, k);
      products::mm_ABt(dv, features, shared.state);
      zero(dk);
    }
    for_each_part(k, [&](scores& s, scores& d, int part) {
      typename scores::row_vec factors, of_denominator;
      if (p.normalize) {
        load(factors, factors_of(0, part));
        load(of_denominator, factors_of(1, part));
      } else {
        one(factors);
        zero(of_denominator);
      }
      for_each(s, d, part, [&](float& x, float& product, int i, bool counts) {
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
      if constexpr (Config::generic) {
        products::mma_AB(dv, of_values, products::part_of(shared.values[at.stage], part));
        add_keys(dk, of_keys, part);
      } else {
        rt<T, 16, kColumns> features;
        make_features(features, k);
        products::mma_fence(features, of_values, of_keys);
        products::mm_ABt(dv, features, shared.state);
        products::mma_AB(dv, of_values, shared.values[at.stage]);
        add_keys(dk, of_keys, part);
        products::mma_commit_group();
        products::template mma_async_wait<0>(dv, dk);
      }
    });
    products::store(shared.o, dv);
    mul(dk, dk, scale);
    float unused[2] = {};
    contract(dk, unused, k);
    if (p.normalize) {
      key_gradients gradient;
      sums.differentiate(gradient, k, scale);
      add(dk, dk, gradient);
    }
    products::store(shared.key_gradients, dk);
  }

  // Of a part of the chunk's values.
  KITTENS_DEVICE const sv<float, products::kPart>& factors_of(int which, int part) const {
    return reinterpret_cast<const sv<float, products::kPart>&>(
        shared.factors[which].data[part * products::kPart]);
  }

  // Adds the gradient of the rows' keys from that of their features, which is the state times their
  // values; and to `inner` this lane's part of Σ φ dφ.
  KITTENS_DEVICE void contract(key_gradients& gradient, float (&inner)[2],
                               const rt<T, 16, kKeys>& x) {
    using slice_tile = st<T, kValues, kSlice>;
    static_assert(slice_tile::swizzle_bytes == Config::state_tile::swizzle_bytes);
    rt<T, 16, kValues> values;
    if constexpr (Config::generic) load_row_values(values);
    feature_contraction<T> rows[2] = {{x.data[0][0], x.data[0][2]}, {x.data[0][1], x.data[0][3]}};
    constexpr int kSlices = kColumns / kSlice;
    constexpr int kAhead = Config::generic ? 0 : 1;  // slices
    rt_fl<16, kSlice> d[1 + kAhead];
    const auto ask = [&](int slice) {
      if (slice >= kSlices) return;
      auto& of_slice = d[slice % (1 + kAhead)];
      const auto& state =
          reinterpret_cast<const slice_tile&>(shared.state.data[slice * slice_tile::num_elements]);
      if constexpr (Config::generic) {
        products::mm_AB(of_slice, values, state);
      } else {
        products::mma_fence(of_slice);
        products::mm_AB(of_slice, shared.row_values[at.stage], state);
        products::mma_commit_group();
      }
    };
    if (kAhead > 0) ask(0);
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      ask(slice + kAhead);
      auto& of_slice = d[slice % (1 + kAhead)];
      if (slice + 1 < kSlices) {
        products::template mma_async_wait<1>(of_slice);
      } else {
        products::template mma_async_wait<0>(of_slice);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows[half].add(slice, [&](int group) -> typename feature_contraction<T>::pair {
          const int at = 4 * group + 2 * half;
          return {of_slice.data[0][at], of_slice.data[0][at + 1]};
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
