// hedgehog attention: what a warpgroup of the backward computes of scores and logits, of both
// kernels. (hedgehog_attention_gradient.cuh, hedgehog_attention_generic_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_generic_gradient_tile.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// Which of the two softmaxes, and blocks of a window, a warpgroup has: of the generic kernel each
// has code of its own; of Hopper's both run the same, which has room in the caches of instructions.
template <int Index>
struct known_warpgroup {
  static constexpr int W = Index;
};
struct any_warpgroup {
  const int W = warpgroupid() % 2;
};

template <class Config, class Warpgroup>
class gradient_rows : protected Warpgroup {
 public:
  KITTENS_DEVICE gradient_rows(const gradient_arguments_of<Config>& p,
                               gradient_shared_of<Config>& shared)
      : p(p), shared(shared), run(shared.run) {}

 protected:
  using Warpgroup::W;
  using T = typename Config::type;
  using scores = rt_fl<16, kBlock>;
  using rows = scores::col_vec;   // a value for each of a warp's rows
  static constexpr int kOwn = 1;  // barriers: of each warpgroup, and of all
  static constexpr int kAll = kOwn + Config::threads / 128;
  const gradient_arguments_of<Config>& p;
  gradient_shared_of<Config>& shared;
  const block_run& run;

  KITTENS_DEVICE void meet() const { arch::named_barrier_sync(kAll, Config::threads); }
  KITTENS_DEVICE int block_of(int step) const { return run.begin + step; }
  // The half of the columns of a tile of tokens, or of a state; of the rows of a map.
  template <class Tile>
  KITTENS_DEVICE static const typename Config::square& half_of(const Tile& tile, int half) {
    static_assert(Tile::num_elements == 2 * Config::square::num_elements);
    return reinterpret_cast<const typename Config::square&>(
        tile.data[half * Config::square::num_elements]);
  }

  // ---- Values of rows ---------------------------------------------------------------------------

  // The row in its block, of this lane's elements of a half.
  KITTENS_DEVICE static int row_of(int half) {
    return arch::warp_id() % 4 * 16 + half * 8 + arch::lane_id() / 4;
  }
  KITTENS_DEVICE static float value_of(const rows& of, int half) {
    float value[1];
    of.data[half].get(value);
    return value[0];
  }
  // Value n of each row: there for both warpgroups when they have met. Where there is room for
  // less values than there are, the last one takes the place of the first, which all have read.
  static constexpr int kRowValues = gradient_shared_of<Config>::kRowValues;
  KITTENS_DEVICE void publish(int n, const rows& values) {
    if (arch::lane_id() % 4 != 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      shared.of_rows[W][n % kRowValues].data[row_of(half)] = value_of(values, half);
    }
  }
  // The sums of all lanes of a row.
  KITTENS_DEVICE void publish_sum(int n, const float (&sums)[2]) {
    rows sum;
#pragma unroll
    for (int half = 0; half < 2; ++half) sum.data[half].set({sums[half]});
    finish_row_sum(sum);
    publish(n, sum);
  }
  KITTENS_DEVICE float published(int warpgroup, int n, int half) const {
    return shared.of_rows[warpgroup][n % kRowValues].data[row_of(half)];
  }

  // ---- Where things are in global memory --------------------------------------------------------

  KITTENS_DEVICE int head() const { return run.batch * p.heads + run.head; }
  KITTENS_DEVICE int64_t part() const {
    return (int64_t{run.batch} * p.runs + run.index) * p.heads + run.head;
  }
  KITTENS_DEVICE int64_t slot_of(int b) const { return int64_t{head()} * p.blocks + b; }
  KITTENS_DEVICE float* sums_of(int b) const {
    return p.state_sums + slot_of(b) * kWidth + W * kHalf;
  }
  KITTENS_DEVICE float4* factors_of(int b) const { return p.factors + slot_of(b) * kBlock; }

  // ---- Elements ---------------------------------------------------------------------------------

  // What a state's parts are multiplied by until they are out of the products: the features of
  // queries times reciprocals would be subnormal numbers of float16.
  static constexpr float kStateScale = 16;
  float of_weights = 0;  // this lane's rows' part of x

  // f(i, half) for each of a lane's elements of a tile of scores, or features: those of half 0 are
  // of one row, and the others of another one.
  template <class F>
  KITTENS_DEVICE static void for_each(F f) {
#pragma unroll
    for (int i = 0; i < kHalf / 2; ++i) f(i, i / 2 % 2);
  }
  // Weights and features, which are at most 1, two in a register: float16 has them to 2⁻¹¹ of what
  // they are, or 2⁻²⁵, where bfloat16 would have them to 2⁻⁸.
  using packed = rt<half, 16, kHalf>;
  KITTENS_DEVICE static float element(const scores& x, int i) { return x.data[0][i]; }
  KITTENS_DEVICE static float element(const packed& x, int i) {
    float pair[2];
    unpack<half>(pair[0], pair[1], x.data[0][i / 2]);
    return pair[i % 2];
  }
  // From here on pairs are taken apart anew: else the compiler keeps what it has taken apart
  // before, in twice as many registers.
  KITTENS_DEVICE static void stay_packed(packed& x) { arch::wgmma_hold(x.data[0]); }
  KITTENS_DEVICE static void stay_packed(scores&) {}
  // A value per column, of which a lane has 16: of its element i. Hopper's kernel leaves them in
  // shared memory.
  struct loaded_columns {
    float data[16];
    KITTENS_DEVICE float operator()(int i) const { return data[i / 4 * 2 + i % 2]; }
  };
  struct shared_columns {
    const float* first;
    KITTENS_DEVICE float operator()(int i) const { return first[i / 4 * 8 + i % 2]; }
  };
  using columns = std::conditional_t<Config::generic, loaded_columns, shared_columns>;
  // Of this warpgroup's softmax the sums of slot b; zeros where there is none.
  KITTENS_DEVICE loaded_columns load_sums(int b) const {
    loaded_columns sums = {};
    if (b >= p.blocks) return sums;
    const float* from = sums_of(b) + arch::lane_id() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 pair = arch::load_global(reinterpret_cast<const float2*>(from + 8 * i));
      sums.data[2 * i] = pair.x;
      sums.data[2 * i + 1] = pair.y;
    }
    return sums;
  }
  // … or those of the state that goes along.
  KITTENS_DEVICE shared_columns state_sums() const {
    return {shared.state_sums[W].data + arch::lane_id() % 4 * 2};
  }
  // The sums of a tile's columns, of this warp's rows: there after a barrier, for …
  KITTENS_DEVICE void add_up_columns(const logits& x) { add_up_columns(x, {1, 1}); }
  // Each row times its weight.
  KITTENS_DEVICE void add_up_columns(const logits& x, const float (&weights)[2]) {
    // Eight lanes have rows of the same eight columns of every 32, and each is left with one of
    // them: what it does not keep goes to the lane that does.
    const int lane = arch::lane_id();
    float* to = shared.of_columns[W][arch::warp_id() % 4].data;
    to += lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2;
#pragma unroll
    for (int first = 0; first < kHalf; first += kWarp) {
      float sums[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float* rows = x.data[0] + first / 2 + i / 2 * 4 + i % 2;
        sums[i] = fmaf(weights[0], rows[0], weights[1] * rows[2]);
      }
#pragma unroll
      for (int left = 4; left >= 1; left /= 2) {
        const bool keeps_last = (lane & 4 * left) != 0;
#pragma unroll
        for (int i = 0; i < left; ++i) {
          const float a = sums[i], b = sums[left + i];
          sums[i] = (keeps_last ? b : a) + arch::shuffle_xor(keeps_last ? a : b, 4 * left);
        }
      }
      to[first] = sums[0];
    }
  }
  // … all rows.
  KITTENS_DEVICE float column_sum(int column) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < 4; ++warp) sum += shared.of_columns[W][warp].data[column];
    return sum;
  }
  KITTENS_DEVICE void store_column_sums(int b) {
    const int column = warpgroup::laneid();
    if (column < kHalf) arch::store_global(sums_of(b) + column, column_sum(column));
  }
  // x, the logits, becomes the features of this warpgroup's softmax, each row by its own scale.
  KITTENS_DEVICE void soften(logits& x, const rows& scale) const {
    if constexpr (Config::generic) {
      softmax<W == 0 ? 1 : -1>(x, x, scale);
    } else {
      const float of_sign = W == 0 ? kLog2e : -kLog2e;
      rows largest, factor;
      if (W == 0) {
        row_max(largest, x);
      } else {
        row_min(largest, x);
      }
      mul(largest, largest, of_sign);
      map_rows([=](float a, float m) { return arch::exp2_approx(fmaf(a, of_sign, -m)); }, x, x,
               largest);
      row_sum(factor, x);
      map([](float a) { return arch::reciprocal_approx(a); }, factor, factor);
      mul(factor, factor, scale);
      mul_row(x, x, factor);
    }
  }
  KITTENS_DEVICE void soften(logits& x) const {
    rows one_each;
    one(one_each);
    soften(x, one_each);
  }

  // ---- Gradients of rows ------------------------------------------------------------------------

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
