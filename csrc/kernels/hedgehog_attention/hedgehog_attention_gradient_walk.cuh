// hedgehog attention: a warpgroup of a pass of the backward. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_base.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class gradient_walk : gradient_base<Config> {
  using base = gradient_base<Config>;
  using base::W, base::block_of, base::entering_block, base::half_of, base::p, base::run,
      base::shared, base::slot, base::state;
  using typename base::scores;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    if (this->brings()) {
      this->request_maps();
      this->request_rows(0);
      this->request_window(0);
      this->request_row_values(0);
      this->request_window_values(0);
    }
    this->load_state();
    zero(d_map);
    this->meet();  // the state is there
    wait(shared.map_full, 0);
#pragma unroll 1
    for (int step = 0; step < run.count; ++step) {
      differentiate(step);
      if constexpr (Config::is_queries) {
        multiply_back_queries(step);
      } else {
        multiply_back_keys(step);
      }
    }
    warpgroup::store(p.map_parts + (this->part() * 2 + W) * kBlock * kHalf, d_map, kHalf);
    if constexpr (Config::is_queries) {
      if (W == 0) this->store_weight_part();
    }
    if (this->signals()) tma::store_async_read_wait<0>();
  }

 private:
  rt_fl<16, kHalf> d_map;  // rows 64 W … of the map's gradient

  // What the products of multiply_back take, into shared memory.
  KITTENS_DEVICE void differentiate(int step) {
    logits x;
    scores s, d, g;  // of queries and keys; dy · v of the same; state times the rows' values
    multiply(x, s, g, step);
    float4 factors[2];
    if constexpr (Config::is_keys) this->load_factors(factors, block_of(step) + W);
    if (this->signals()) tma::store_async_read_wait<0>();
    warpgroup::mma_async_wait<2>(x);
    this->soften(x);
    warpgroup::mma_async_wait<1>(s);
    if (Config::is_queries == (W == 1)) warpgroup::tril(s, s, 0, -INFINITY);
    multiply_values(d, step);
    const auto await = [&] {
      warpgroup::mma_async_wait<0>(d, g);
      return this->state_sums();
    };
    if constexpr (Config::is_queries) {
      if (W == 0 && block_of(step) == 0) fill(s, -INFINITY);
      this->differentiate_queries(x, s, d, g, step, await);
    } else {
      this->meet();  // what was stored last has left shared memory
      const auto dz = await();
      this->differentiate_window(s, d, factors);
      this->differentiate_features(x, g, dz);
      warpgroup::store_unfenced(shared.weights[W], d);
      warpgroup::store_unfenced(shared.features[W], x);
    }
    warpgroup::store_unfenced(shared.d_scores[W], s);
    warpgroup::store(shared.d_logits[W], g);
    this->meet();  // all operands are there, and the products above are done
    if (this->brings()) this->request_row_values(step + 1);
  }

  // Asks for logits, then for scores, and then for the product with the state.
  KITTENS_DEVICE void multiply(logits& x, scores& s, scores& g, int step) {
    wait(shared.rows_full, step % 2);
    warpgroup::mma_fence(x);
    warpgroup::mm_AB(x, shared.rows, shared.map);
    warpgroup::mma_commit_group();
    wait(shared.window_full, step % 2);
    warpgroup::mma_fence(s);
    this->multiply_by_keys(s, shared.rows, shared.window[slot(step, W)]);
    warpgroup::mma_commit_group();
    wait(shared.row_values_full, step % 2);
    warpgroup::mma_fence(g);
    warpgroup::mm_ABt(g, shared.row_values, shared.state[W]);
    warpgroup::mma_commit_group();
  }
  // Asks for the products of values, of which a window's come last.
  KITTENS_DEVICE void multiply_values(scores& d, int step) {
    wait(shared.window_values_full, step % 2);
    warpgroup::mma_fence(d);
    this->multiply_by_keys(d, shared.row_values, shared.window_values[slot(step, W)]);
    warpgroup::mma_commit_group();
  }
  // Asks for the gradient of the rows, half of the columns, and adds to that of the map.
  KITTENS_DEVICE void multiply_back(rt_fl<16, kHalf>& d_rows, int step) {
    const auto& map = half_of(shared.map, W);
    const auto& own = half_of(shared.rows, W);
    warpgroup::mma_fence(d_rows, d_map);
    this->multiply_window(d_rows, shared.d_scores, shared.window, step);
    warpgroup::mma_ABt(d_rows, shared.d_logits[0], map);
    warpgroup::mma_ABt(d_rows, shared.d_logits[1], map);
    warpgroup::mma_AtB(d_map, own, shared.d_logits[0]);
    warpgroup::mma_AtB(d_map, own, shared.d_logits[1]);
    warpgroup::mma_commit_group();
  }

  KITTENS_DEVICE void multiply_back_queries(int step) {
    const int entering = slot(step, base::kEntering);
    logits x;
    rt_fl<16, kHalf> d_rows;
    this->multiply_entering(x, entering);
    multiply_back(d_rows, step);
    warpgroup::mma_async_wait<1>(x);
    this->soften_entering(x, entering_block(step), {});
    warpgroup::store(shared.features[W], x);
    warpgroup::mma_async_wait<0>(d_rows, d_map);
    this->meet();  // rows, keys, and gradients of scores and logits have been read
    request_rows_and_window(step + 1);
    end_step(step, [&] { warpgroup::store_unfenced(shared.d_scores[W], d_rows); });
  }

  KITTENS_DEVICE void multiply_back_keys(int step) {
    const int entering = slot(step, base::kEntering);
    logits x;
    rt_fl<16, kHalf> d_rows, d_values;
    float4 factors[2];
    this->load_factors(factors, entering_block(step));
    this->multiply_entering(x, entering);
    multiply_back(d_rows, step);
    warpgroup::mma_fence(d_values);
    this->multiply_window(d_values, shared.weights, shared.window_values, step);
    warpgroup::mma_AB(d_values, shared.features[0], half_of(shared.state[0], W));
    warpgroup::mma_AB(d_values, shared.features[1], half_of(shared.state[1], W));
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<2>(x);
    this->soften_entering(x, entering_block(step), factors);
    warpgroup::mma_async_wait<1>(d_rows, d_map);
    this->meet();  // rows, queries, and gradients of scores and logits have been read
    request_rows_and_window(step + 1);
    warpgroup::store_unfenced(shared.d_scores[W], d_rows);
    warpgroup::mma_async_wait<0>(d_values);
    this->meet();  // weights, features and the state have been read
    warpgroup::store(shared.features[W], x);
    this->meet_own();  // all features of W are there
    end_step(step, [&] { warpgroup::store_unfenced(shared.weights[W], d_values); });
  }

  KITTENS_DEVICE void request_rows_and_window(int step) {
    if (!this->brings()) return;
    this->request_rows(step);
    this->request_window(step);
  }
  // What is left when all features of what enters are there: `store` takes the last of the results
  // into shared memory. Behind the last step nobody needs the state.
  template <class F>
  KITTENS_DEVICE void end_step(int step, F store) {
    if (step + 1 < run.count) {
      this->multiply_into_state(slot(step, base::kEntering));
      store();
      this->add_to_state_sums();
      warpgroup::mma_async_wait<0>(state);
      this->publish_state();
    } else {
      store();
      arch::fence_async_proxy();
    }
    this->meet();  // results and the state are there, and the window's values have been read
    if (this->brings()) this->request_window_values(step + 1);
    this->store_gradients(step);
  }
};

// What the blocks that enter in a part of a run add to the state.
template <class Config>
class part_state_walk : gradient_base<Config> {
  using base = gradient_base<Config>;
  using base::W, base::entering_block, base::p, base::run, base::shared, base::state;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    if (this->brings()) {
      this->request_maps();
      request(0);
    }
    this->load_state();
    wait(shared.map_full, 0);
#pragma unroll 1
    for (int step = 0; step < run.count; ++step) add_block(step);
    this->store_state();
  }

 private:
  // Of both tiles: each of two stages has one.
  KITTENS_DEVICE semaphore& full(int step) const {
    return step % 2 == 0 ? shared.window_full : shared.window_values_full;
  }
  KITTENS_DEVICE void request(int step) {
    if (step >= run.count) return;
    using tile = typename Config::token_tile;
    const sequence_origin origin = sequence_origin::of(run.batch);
    const int token = entering_block(step) * kBlock;
    expect_bytes(full(step), 2 * tma::bytes<tile>);
    tma::load_async(shared.window[step % 2], p.window, full(step), origin, token, run.head);
    tma::load_async(shared.window_values[step % 2], p.window_values, full(step), origin, token,
                    run.head);
  }
  KITTENS_DEVICE void add_block(int step) {
    logits x;
    float4 factors[2] = {};
    if (this->brings()) request(step + 1);
    wait(full(step), step / 2 % 2);
    this->multiply_entering(x, step % 2);
    if constexpr (Config::is_keys) this->load_factors(factors, entering_block(step));
    warpgroup::mma_async_wait<0>(x);
    this->soften_entering(x, entering_block(step), factors);
    warpgroup::store(shared.features[W], x);
    this->meet_own();  // all features of W are there
    this->multiply_into_state(step % 2);
    this->add_to_state_sums();
    warpgroup::mma_async_wait<0>(state);
    this->meet();  // the tiles have been read
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
