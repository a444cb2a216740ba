// hedgehog attention: what a warpgroup of the backward computes of scores and logits, of both
// kernels. (hedgehog_attention_gradient.cuh, hedgehog_attention_generic_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_elements.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config, class Warpgroup>
class gradient_rows : protected gradient_elements<Config, Warpgroup> {
  using base = gradient_elements<Config, Warpgroup>;

 public:
  using base::base;

 protected:
  using base::W, base::p, base::run, base::shared, base::block_of, base::element, base::factors_of,
      base::for_each, base::kOwn, base::kStateScale, base::part, base::publish, base::publish_sum,
      base::published, base::row_of, base::stay_packed, base::value_of;
  using typename base::T, typename base::rows, typename base::scores, typename base::packed,
      typename base::columns;
  float of_weights = 0;  // this lane's rows' part of x

  // What the rows of queries tell each other, both warpgroups of a softmax or of the window:
  enum row_value { kLargest, kWeights, kWeightedValues, kFeatures, kFeatureValues, kCount };

  // s, the scores of both blocks of a window, become weights without beta. The sign of a weight
  // says whether its score is the largest: a bit of each in a register of their own takes three
  // instructions an element. `meet` is where all who have scores meet.
  template <class F>
  KITTENS_DEVICE void weigh(scores& s, float (&largest)[2], float (&count)[2], F meet) {
    rows own;
    row_max(own, s);
    publish(kLargest, own);
    meet();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = fmaxf(published(0, kLargest, half), published(1, kLargest, half));
      count[half] = 0;
    }
    for_each([&](int i, int half) {
      if (s.data[0][i] == largest[half]) count[half] += 1;
      s.data[0][i] = weight_of(s.data[0][i], largest[half]);
    });
  }
  KITTENS_DEVICE float weight_of(float score, float largest) const {
    const float weight = arch::exp2_approx(fmaf(p.score_scale, score, -p.score_scale * largest));
    return score == largest ? -weight : weight;
  }
  // Of weights, and of them times d, dy · v.
  template <class Weights>
  KITTENS_DEVICE void add_up_weights(const Weights& weights, const scores& d,
                                     const float (&count)[2]) {
    float sums[2] = {}, values[2] = {};
    for_each([&](int i, int half) {
      const float weight = fabsf(element(weights, i));
      sums[half] += weight;
      values[half] = fmaf(weight, d.data[0][i], values[half]);
    });
    publish_sum(kWeights, sums);
    publish_sum(kWeightedValues, values);
    publish_sum(kCount, count);
  }
  // Of features times the state's sums, and times g, the state times dy.
  template <class Features>
  KITTENS_DEVICE void add_up_features(const Features& f, const scores& g, const columns& z) {
    float sums[2] = {}, values[2] = {};
    for_each([&](int i, int half) {
      sums[half] = fmaf(element(f, i), z(i), sums[half]);
      values[half] = fmaf(element(f, i), g.data[0][i], values[half]);
    });
    publish_sum(kFeatures, sums);
    publish_sum(kFeatureValues, values);
  }

  // Of a query, when all sums are there.
  struct query_factors {
    float alpha, beta;
    float r, delta;
    float x;  // its part of x, for alpha and beta
  };
  KITTENS_DEVICE query_factors factors_of_query(int step, int half) const {
    const auto total = [&](row_value n) { return published(0, n, half) + published(1, n, half); };
    query_factors of;
    of.alpha = arch::load_global(p.alpha + run.head);
    of.beta = arch::load_global(p.beta + run.head);
    const int token = block_of(step) * kBlock + row_of(half);
    const float w = total(kWeights), w_values = total(kWeightedValues);
    const float l = total(kFeatures), l_values = total(kFeatureValues);
    of.r = token < p.length ? 1 / fmaf(of.beta, w, of.alpha * l) : 0;
    of.delta = of.r * fmaf(of.beta, w_values, of.alpha * l_values);
    of.x = (of.r * w_values) * (of.r * l) - (of.r * l_values) * (of.r * w);
    return of;
  }
  // The gradient of queries' scores. The factors are left for the pass of keys.
  template <class Weights>
  KITTENS_DEVICE void differentiate_weights(scores& d_scores, const Weights& weights,
                                            const scores& d, const float (&largest)[2], int step) {
    float of_values[2], of_weight[2], of_largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const query_factors of = factors_of_query(step, half);
      const float count = published(0, kCount, half) + published(1, kCount, half);
      const float largest_part = of.alpha * of.beta * of.x / count;
      of_values[half] = p.scale * of.beta * of.r;
      of_weight[half] = -of_values[half] * of.delta;
      of_largest[half] = p.scale * largest_part;
      if (W == 0 && arch::lane_id() % 4 == 0) {
        of_weights += of.x;
        arch::store_global(factors_of(block_of(step)) + row_of(half),
                           float4{of.r, of.delta, largest[half], largest_part});
      }
    }
    differentiate_scores(d_scores, weights, d, of_values, of_weight, of_largest);
  }
  // g, the state times dy of queries, becomes the gradient of their logits. Of the generic kernel
  // f, the features, become what the state's part takes of them, and of d the columns add up to
  // what the state's sums take.
  template <class Features>
  KITTENS_DEVICE void differentiate_logits(Features& f, scores& g, const columns& z, int step,
                                           scores* d = nullptr) const {
    float of_state[2], of_sums[2], of_feature[2], scaled[2], delta[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const query_factors of = factors_of_query(step, half);
      delta[half] = of.delta;
      scaled[half] = of.alpha * of.r;
      of_state[half] = W == 0 ? scaled[half] : -scaled[half];
      of_sums[half] = -of_state[half] * of.delta;
      of_feature[half] = -fmaf(of_state[half], published(W, kFeatureValues, half),
                               of_sums[half] * published(W, kFeatures, half));
    }
    for_each([&](int i, int half) {
      const float feature = element(f, i);
      const float relative = fmaf(of_sums[half], z(i), of_feature[half]);
      g.data[0][i] = feature * fmaf(of_state[half], g.data[0][i], relative);
      if constexpr (Config::generic) {
        d->data[0][i] = -scaled[half] * feature * delta[half];
        f.data[0][i] = kStateScale * scaled[half] * feature;
      }
    });
  }

  template <class Weights>
  KITTENS_DEVICE static void differentiate_scores(scores& d_scores, const Weights& weights,
                                                  const scores& d, const float (&of_values)[2],
                                                  const float (&of_weight)[2],
                                                  const float (&of_largest)[2]) {
    for_each([&](int i, int half) {
      const float weight = element(weights, i);
      float d_score = fabsf(weight) * fmaf(of_values[half], d.data[0][i], of_weight[half]);
      if (weight < 0) d_score -= of_largest[half];
      d_scores.data[0][i] = d_score;
    });
  }

  // Of queries of this warpgroup's block, whose factors are known: s, the scores, become weights.
  KITTENS_DEVICE void weigh(scores& s, const float4 (&factors)[2]) const {
    for_each([&](int i, int half) { s.data[0][i] = weight_of(s.data[0][i], factors[half].z); });
  }
  // … and the gradient of their scores.
  template <class Weights>
  KITTENS_DEVICE void differentiate_weights(scores& d_scores, const Weights& weights,
                                            const scores& d, const float4 (&factors)[2]) const {
    float of_values[2], of_weight[2], of_largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto [r, delta, largest, largest_part] = factors[half];
      of_values[half] = p.scale * share_of(factors[half]);
      of_weight[half] = -of_values[half] * delta;
      of_largest[half] = p.scale * largest_part;
    }
    differentiate_scores(d_scores, weights, d, of_values, of_weight, of_largest);
  }
  // What values' gradients take of dy, of weights, which have a sign.
  template <class Weights>
  KITTENS_DEVICE void take_shares(rt<T, 16, kBlock>& shares, const Weights& weights,
                                  const float4 (&factors)[2]) const {
    const float share[2] = {share_of(factors[0]), share_of(factors[1])};
#pragma unroll
    for (int i = 0; i < kBlock / 4; ++i) {
      const float by = share[i % 2];
      shares.data[0][i] =
          pack<T>(by * fabsf(element(weights, 2 * i)), by * fabsf(element(weights, 2 * i + 1)));
    }
  }
  // What a weight of a query is multiplied by.
  KITTENS_DEVICE float share_of(const float4& factors) const {
    return arch::load_global(p.beta + run.head) * factors.x;
  }
  // The factors of a block of queries, or the first two of them; zeros where there is none.
  template <class Factors>
  KITTENS_DEVICE void load_factors(Factors (&factors)[2], int block) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factors[half] = {};
      if (block < 0 || block >= p.blocks) continue;
      const float4* const from = factors_of(block) + row_of(half);
      factors[half] = arch::load_global(reinterpret_cast<const Factors*>(from));
    }
  }
  // Of keys: g, dS v, becomes the gradient of their logits. f are their features.
  template <class Features>
  KITTENS_DEVICE void differentiate_features(Features& f, scores& g, const columns& dz) const {
    float sums[2] = {};
    for_each([&](int i, int half) {
      g.data[0][i] += dz(i);
      sums[half] = fmaf(element(f, i), g.data[0][i], sums[half]);
    });
    rows inner;
#pragma unroll
    for (int half = 0; half < 2; ++half) inner.data[half].set({sums[half]});
    finish_row_sum(inner);
    stay_packed(f);
    const float sign = W == 0 ? 1 : -1;
    for_each([&](int i, int half) {
      const float relative = fmaf(sign, g.data[0][i], -sign * value_of(inner, half));
      g.data[0][i] = element(f, i) * relative;
    });
  }

  KITTENS_DEVICE void store_weight_part() {
    for (int distance = 4; distance < kWarp; distance *= 2) {
      of_weights += arch::shuffle_xor(of_weights, distance);
    }
    if (arch::lane_id() == 0) shared.of_rows[0][0].data[arch::warp_id()] = of_weights;
    warpgroup::sync(kOwn);
    if (arch::thread_id() != 0) return;
    float sum = 0;
    for (int warp = 0; warp < 4; ++warp) sum += shared.of_rows[0][0].data[warp];
    arch::store_global(p.weight_parts + part(), sum);
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
