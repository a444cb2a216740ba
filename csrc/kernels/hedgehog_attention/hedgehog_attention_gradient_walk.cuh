// hedgehog attention: a warpgroup of a pass of the backward. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_base.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config, int W>
class gradient_walk : gradient_base<Config, W> {
  using base = gradient_base<Config, W>;
  using base::block_of, base::half_of, base::kOwn, base::p, base::shared, base::slot;
  using typename base::rows, typename base::scores;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    if (shared.count <= 0) return;
    if (this->brings()) {
      this->request_map();
      this->request_early(0);
      this->request_late(0);
    }
    zero(d_map);
    wait(shared.map_full, 0);
#pragma unroll 1
    for (int step = 0; step < shared.count; ++step) {
      if constexpr (Config::is_states) {
        find_state(step);
      } else {
        differentiate(step);
      }
    }
    if constexpr (!Config::is_states) {
      warpgroup::store(p.map_parts + (this->part() * 2 + W) * kBlock * kHalf, d_map, kHalf);
    }
    if constexpr (Config::is_queries && W == 0) store_weight_part();
    if (this->signals()) tma::store_async_read_wait<0>();
  }

 private:
  // What a state's parts are multiplied by until they are out of the products: the features of
  // queries times reciprocals would be subnormal numbers of float16.
  static constexpr float kStateScale = 16;
  rt_fl<16, kHalf> d_map;  // rows 64 W … of the map's gradient
  float of_weights = 0;    // this lane's rows' part of x

  // f(i, half) for each of a lane's elements of a tile of scores, or features: those of half 0 are
  // of one row, and the others of another one.
  template <class F>
  KITTENS_DEVICE static void for_each(F f) {
#pragma unroll
    for (int i = 0; i < kHalf / 2; ++i) f(i, i / 2 % 2);
  }
  // A value per column, of which a lane has 16: of its element i.
  struct columns {
    float data[16];
    KITTENS_DEVICE float operator()(int i) const { return data[i / 4 * 2 + i % 2]; }
  };
  // Of this warpgroup's softmax the sums of slot b; zeros where there is none.
  KITTENS_DEVICE columns load_sums(int b) const {
    columns sums = {};
    if (b >= p.blocks) return sums;
    const float* from = this->sums_of(b) + arch::lane_id() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 pair = arch::load_global(reinterpret_cast<const float2*>(from + 8 * i));
      sums.data[2 * i] = pair.x;
      sums.data[2 * i + 1] = pair.y;
    }
    return sums;
  }
  // The sums of a tile's columns, of this warp's rows: there after a barrier, for …
  KITTENS_DEVICE void add_up_columns(const logits& x) {
    logits::row_vec sums;
    col_sum(sums, x);
    store(shared.of_columns[W][arch::warp_id() % 4], sums);
  }
  // … all rows.
  KITTENS_DEVICE void store_column_sums(int b) {
    const int column = warpgroup::laneid();
    if (column >= kHalf) return;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < 4; ++warp) sum += shared.of_columns[W][warp].data[column];
    arch::store_global(this->sums_of(b) + column, sum);
  }
  // x, the logits, becomes the features of this warpgroup's softmax.
  KITTENS_DEVICE static void soften(logits& x) {
    rows one_each;
    one(one_each);
    softmax<W == 0 ? 1 : -1>(x, x, one_each);
  }

  // ---- What keys add to the state ---------------------------------------------------------------

  KITTENS_DEVICE void find_state(int step) {
    logits x;
    wait(shared.rows_full, step % 2);
    warpgroup::mma_fence(x);
    warpgroup::mm_AB(x, shared.rows, shared.map);
    warpgroup::mma_commit_group();
    if (this->signals()) tma::store_async_read_wait<0>();
    warpgroup::mma_async_wait<0>(x);
    this->meet();  // what was stored last has left shared memory; the keys have been read
    if (this->brings()) this->request_rows(step + 1);
    soften(x);
    add_up_columns(x);
    warpgroup::store(shared.features[W], x);
    warpgroup::sync(kOwn + W);
    rt_fl<16, kWidth> added;
    wait(shared.row_values_full, step % 2);
    warpgroup::mma_fence(added);
    warpgroup::mm_AtB(added, shared.features[W], shared.row_values);
    warpgroup::mma_commit_group();
    store_column_sums(block_of(step) + 2);
    warpgroup::mma_async_wait<0>(added);
    this->meet();  // features and values have been read
    if (this->brings()) this->request_row_values(step + 1);
    warpgroup::store(this->state_going_out(), added);
    warpgroup::sync(kOwn + W);
    this->store_state(block_of(step) + 2);
  }

  // ---- Gradients --------------------------------------------------------------------------------

  KITTENS_DEVICE void differentiate(int step) {
    logits x;
    scores s, d, g;  // of queries and keys; dy · v of the same; state times the rows' values
    multiply(x, s, d, g, step);
    if (this->signals()) tma::store_async_read_wait<0>();
    warpgroup::mma_async_wait<1>(x, s);
    soften(x);
    if (Config::is_queries == (W == 1)) warpgroup::tril(s, s, 0, -INFINITY);
    if constexpr (Config::is_queries) {
      if (W == 0 && block_of(step) == 0) fill(s, -INFINITY);
      differentiate_queries(x, s, d, g, step);
    } else {
      differentiate_keys(x, s, d, g, step);
    }
    this->meet();  // all operands are there, and the products above are done
    if (this->brings()) this->request_early(step + 1);
    multiply_back(step);
  }

  // Asks for logits and scores, and then for the products of values.
  KITTENS_DEVICE void multiply(logits& x, scores& s, scores& d, scores& g, int step) {
    const auto& window = shared.window[slot(step, W)];
    const auto& window_values = shared.window_values[slot(step, W)];
    wait(shared.rows_full, step % 2);
    wait(shared.window_full, step % 2);
    warpgroup::mma_fence(x, s);
    warpgroup::mm_AB(x, shared.rows, shared.map);
    this->multiply_by_keys(s, shared.rows, window);
    warpgroup::mma_commit_group();
    wait(shared.row_values_full, step % 2);
    wait(shared.window_values_full, step % 2);
    wait(shared.state_full, step % 2);
    warpgroup::mma_fence(d, g);
    this->multiply_by_keys(d, shared.row_values, window_values);
    warpgroup::mm_ABt(g, shared.row_values, shared.state[W]);
    warpgroup::mma_commit_group();
  }

  // Of each row of queries; then their d_scores, d_logits and features, times what the state takes.
  KITTENS_DEVICE void differentiate_queries(logits& f, scores& s, scores& d, scores& g, int step) {
    const float alpha = arch::load_global(p.alpha + shared.head);
    const float beta = arch::load_global(p.beta + shared.head);
    const columns z = load_sums(block_of(step));
    rows own;
    row_max(own, s);
    this->publish(0, own);
    this->meet();                       // what was stored last has left shared memory, too
    float largest[2], sums[5][2] = {};  // of weights, of them times dy · v; of features, likewise
    uint32_t is_largest = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = fmaxf(this->published(0, 0, half), this->published(1, 0, half));
    }
    for_each([&](int i, int half) {
      if (s.data[0][i] == largest[half]) {
        is_largest |= 1u << i;
        sums[4][half] += 1;
      }
      s.data[0][i] = arch::exp2_approx(p.score_scale * (s.data[0][i] - largest[half]));
    });
    warpgroup::mma_async_wait<0>(d, g);
    for_each([&](int i, int half) {
      sums[0][half] += s.data[0][i];
      sums[1][half] = fmaf(s.data[0][i], d.data[0][i], sums[1][half]);
      sums[2][half] = fmaf(f.data[0][i], z(i), sums[2][half]);
      sums[3][half] = fmaf(f.data[0][i], g.data[0][i], sums[3][half]);
    });
    float linear[2][2];  // this warpgroup's sums of features
#pragma unroll
    for (int n = 0; n < 5; ++n) {
      rows sum;
#pragma unroll
      for (int half = 0; half < 2; ++half) sum.data[half].set({sums[n][half]});
      finish_row_sum(sum);
      this->publish(n + 1, sum);
      if (n == 2 || n == 3) {
        for (int half = 0; half < 2; ++half) linear[n - 2][half] = this->value_of(sum, half);
      }
    }
    this->meet();
    float reciprocal[2], delta[2], of_largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto total = [&](int n) {
        return this->published(0, n, half) + this->published(1, n, half);
      };
      const int token = block_of(step) * kBlock + base::row_of(half);
      const float w = total(1), w_values = total(2), l = total(3), l_values = total(4);
      const float r = token < p.length ? 1 / fmaf(beta, w, alpha * l) : 0;
      const float x = (r * w_values) * (r * l) - (r * l_values) * (r * w);
      reciprocal[half] = r;
      delta[half] = r * fmaf(beta, w_values, alpha * l_values);
      of_largest[half] = alpha * beta * x / total(5);
      if (W == 0 && arch::lane_id() % 4 == 0) {
        of_weights += x;
        arch::store_global(this->factors_of(block_of(step)) + base::row_of(half),
                           float4{largest[half], r, delta[half], of_largest[half]});
      }
    }
    for_each([&](int i, int half) {
      const float r = reciprocal[half], from_delta = d.data[0][i] - delta[half];
      s.data[0][i] = p.scale * (beta * s.data[0][i] * (r * from_delta) -
                                (is_largest >> i & 1 ? of_largest[half] : 0.0f));
      const float relative =
          (g.data[0][i] - linear[1][half]) - delta[half] * (z(i) - linear[0][half]);
      const float scaled = alpha * r * f.data[0][i];
      g.data[0][i] = (W == 0 ? scaled : -scaled) * relative;
      d.data[0][i] = -scaled * delta[half];
      f.data[0][i] = kStateScale * scaled;
    });
    warpgroup::store(shared.d_scores[W], s);
    warpgroup::store(shared.d_logits[W], g);
    warpgroup::store(shared.features[W], f);
    add_up_columns(d);
  }

  // d_scores and weights of the queries of this warpgroup's block; d_logits and features of keys.
  KITTENS_DEVICE void differentiate_keys(logits& f, scores& s, scores& d, scores& g, int step) {
    const float beta = arch::load_global(p.beta + shared.head);
    const columns dz = load_sums(block_of(step) + 2);
    float4 factors[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int block = block_of(step) + W;
      if (block >= p.blocks) continue;
      factors[half] = arch::load_global(this->factors_of(block) + base::row_of(half));
    }
    this->meet();  // what was stored last has left shared memory
    warpgroup::mma_async_wait<0>(d, g);
    rows inner;
    float sums[2] = {};
    for_each([&](int i, int half) {
      const auto [largest, r, delta, of_largest] = factors[half];
      const float score = s.data[0][i];
      const float weight = beta * arch::exp2_approx(p.score_scale * (score - largest)) * r;
      s.data[0][i] =
          p.scale * (weight * (d.data[0][i] - delta) - (score == largest ? of_largest : 0.0f));
      d.data[0][i] = weight;
      g.data[0][i] += dz(i);
      sums[half] = fmaf(f.data[0][i], g.data[0][i], sums[half]);
    });
#pragma unroll
    for (int half = 0; half < 2; ++half) inner.data[half].set({sums[half]});
    finish_row_sum(inner);
    for_each([&](int i, int half) {
      const float relative = g.data[0][i] - this->value_of(inner, half);
      g.data[0][i] = (W == 0 ? f.data[0][i] : -f.data[0][i]) * relative;
    });
    warpgroup::store(shared.d_scores[W], s);
    warpgroup::store(shared.weights[W], d);
    warpgroup::store(shared.d_logits[W], g);
    warpgroup::store(shared.features[W], f);
  }

  // The products with d_scores, d_logits, weights and features, and what comes of them.
  KITTENS_DEVICE void multiply_back(int step) {
    const auto& map = half_of(shared.map, W);
    const auto& own = half_of(shared.rows, W);
    rt_fl<16, kHalf> d_rows, d_values;  // half of the columns
    rt_fl<16, kWidth> added;
    warpgroup::mma_fence(d_rows, d_map);
    this->multiply_window(d_rows, shared.d_scores, shared.window, step);
    warpgroup::mma_ABt(d_rows, shared.d_logits[0], map);
    warpgroup::mma_ABt(d_rows, shared.d_logits[1], map);
    warpgroup::mma_AtB(d_map, own, shared.d_logits[0]);
    warpgroup::mma_AtB(d_map, own, shared.d_logits[1]);
    if constexpr (Config::is_queries) {
      warpgroup::mm_AtB(added, shared.features[W], shared.row_values);
      warpgroup::mma_commit_group();
      store_column_sums(block_of(step));
      warpgroup::mma_async_wait<0>(d_rows, d_map, added);
    } else {
      this->multiply_window(d_values, shared.weights, shared.window_values, step);
      warpgroup::mma_AB(d_values, shared.features[0], half_of(shared.state[0], W));
      warpgroup::mma_AB(d_values, shared.features[1], half_of(shared.state[1], W));
      warpgroup::mma_commit_group();
      warpgroup::mma_async_wait<0>(d_rows, d_map, d_values);
    }
    this->meet();  // all tiles have been read
    if (this->brings()) this->request_late(step + 1);
    warpgroup::store(shared.d_scores[W], d_rows);
    if constexpr (Config::is_queries) {
      mul(added, added, 1 / kStateScale);
      warpgroup::store(this->state_going_out(), added);
    } else {
      warpgroup::store(shared.weights[W], d_values);
    }
    warpgroup::sync(kOwn + W);
    if constexpr (Config::is_queries) this->store_state(block_of(step));
    this->store_gradients(step);
  }

  KITTENS_DEVICE void store_weight_part() {
    for (int distance = 4; distance < kWarp; distance *= 2) {
      of_weights += arch::shuffle_xor(of_weights, distance);
    }
    if (arch::lane_id() == 0) shared.of_rows[0][0].data[arch::warp_id()] = of_weights;
    warpgroup::sync(kOwn);
    if (!this->signals()) return;
    float sum = 0;
    for (int warp = 0; warp < 4; ++warp) sum += shared.of_rows[0][0].data[warp];
    arch::store_global(p.weight_parts + this->part(), sum);
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
