// hedgehog attention: a warpgroup of a pass of the backward. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_base.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config, int W>
class gradient_walk : gradient_base<Config, W> {
  using base = gradient_base<Config, W>;
  using base::block_of, base::half_of, base::kOwn, base::p, base::run, base::shared, base::slot;
  using typename base::scores;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    if (run.count <= 0) return;
    if (this->brings()) {
      this->request_map();
      this->request_early(0);
      this->request_late(0);
    }
    zero(d_map);
    wait(shared.map_full, 0);
#pragma unroll 1
    for (int step = 0; step < run.count; ++step) {
      if constexpr (Config::is_states) {
        find_state(step);
      } else {
        differentiate(step);
      }
    }
    if constexpr (!Config::is_states) {
      warpgroup::store(p.map_parts + (this->part() * 2 + W) * kBlock * kHalf, d_map, kHalf);
    }
    if constexpr (Config::is_queries && W == 0) this->store_weight_part();
    if (this->signals()) tma::store_async_read_wait<0>();
  }

 private:
  using base::kStateScale;
  rt_fl<16, kHalf> d_map;  // rows 64 W … of the map's gradient

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
    this->soften(x);
    this->add_up_columns(x);
    warpgroup::store(shared.features[W], x);
    warpgroup::sync(kOwn + W);
    rt_fl<16, kWidth> added;
    wait(shared.row_values_full, step % 2);
    warpgroup::mma_fence(added);
    warpgroup::mm_AtB(added, shared.features[W], shared.row_values);
    warpgroup::mma_commit_group();
    this->store_column_sums(block_of(step) + 2);
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
    this->soften(x);
    if (Config::is_queries == (W == 1)) warpgroup::tril(s, s, 0, -INFINITY);
    if constexpr (Config::is_queries) {
      if (W == 0 && block_of(step) == 0) fill(s, -INFINITY);
      const auto z = this->load_sums(block_of(step));
      this->differentiate_queries(x, s, d, g, step, [&] {
        warpgroup::mma_async_wait<0>(d, g);
        return z;
      });
      warpgroup::store(shared.d_scores[W], s);
      warpgroup::store(shared.d_logits[W], g);
      warpgroup::store(shared.features[W], x);
      this->add_up_columns(d);
    } else {
      const auto dz = this->load_sums(block_of(step) + 2);
      float4 factors[2];
      this->load_factors(factors, step);
      this->meet();  // what was stored last has left shared memory
      warpgroup::mma_async_wait<0>(d, g);
      this->differentiate_window(s, d, factors);
      this->differentiate_features(x, g, dz);
      warpgroup::store(shared.d_scores[W], s);
      warpgroup::store(shared.weights[W], d);
      warpgroup::store(shared.d_logits[W], g);
      warpgroup::store(shared.features[W], x);
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
      this->store_column_sums(block_of(step));
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
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
