// hedgehog attention: a warpgroup of the backward that has scores of one block of the window, and
// the gradients that leave. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_base.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class window_walk : gradient_base<Config, half_of_values<1>> {
  using base = gradient_base<Config, half_of_values<1>>;
  using base::W, base::block_of, base::half_of, base::p, base::run, base::shared, base::slot;
  using typename base::T, typename base::scores;

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
    this->meet();  // the state is there
#pragma unroll 1
    for (int step = 0; step < run.count; ++step) {
      differentiate(step);
      multiply_back(step);
    }
    if constexpr (Config::is_queries) {
      if (W == 0) this->store_weight_part();
    }
    if (this->signals()) tma::store_async_read_wait<0>();
  }

 private:
  // The scores' gradients, and of keys the weights, into shared memory.
  KITTENS_DEVICE void differentiate(int step) {
    typename base::packed weights;
    scores d;  // dy · v of queries and keys, and then their scores' gradient
    if constexpr (Config::is_queries) {
      float largest[2], count[2];
      find_weights(weights, step, [&](scores& s) {
        if (W == 0 && block_of(step) == 0) fill(s, -INFINITY);
        this->weigh(s, largest, count, [&] { this->meet_half(base::kAtScores); });
      });
      multiply_values(d, step);
      this->add_up_weights(weights, d, count);
      if (this->signals()) tma::store_async_read_wait<0>();
      this->meet();  // all sums are there; what was stored last has left shared memory
      this->stay_packed(weights);
      this->differentiate_weights(d, weights, d, largest, step);
    } else {
      float4 factors[2];
      this->load_factors(factors, block_of(step) + W);
      find_weights(weights, step, [&](scores& s) { this->weigh(s, factors); });
      multiply_values(d, step);
      if (this->signals()) tma::store_async_read_wait<0>();
      this->meet_own();  // what was stored last has left shared memory
      this->differentiate_weights(d, weights, d, factors);
      this->stay_packed(weights);
      rt<T, 16, kBlock> shares;
      this->take_shares(shares, weights, factors);
      warpgroup::store_unfenced(shared.weights[W], shares);
    }
    warpgroup::store(shared.d_scores[W], d);
    this->await(base::kAtOperands);
    if (this->brings()) this->request_row_values(step + 1);
  }
  // Packed, for there are no registers for float32 beside the state, d and what rows have.
  template <class F>
  KITTENS_DEVICE void find_weights(typename base::packed& weights, int step, F weigh) {
    scores s;
    wait(shared.rows_full, step % 2);
    wait(shared.window_full, step % 2);
    warpgroup::mma_fence(s);
    this->multiply_by_keys(s, shared.rows, shared.window[slot(step, W)]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(s);
    if (Config::is_queries == (W == 1)) warpgroup::tril(s, s, 0, -INFINITY);
    weigh(s);
    copy(weights, s);
    this->stay_packed(weights);
  }
  KITTENS_DEVICE void multiply_values(scores& d, int step) {
    wait(shared.row_values_full, step % 2);
    wait(shared.window_values_full, step % 2);
    warpgroup::mma_fence(d);
    this->multiply_by_keys(d, shared.row_values, shared.window_values[slot(step, W)]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(d);
  }

  // The gradients of rows, half of the columns each, and of keys those of their values. That the
  // map is there the warpgroups of features have seen before the logits' gradients were.
  KITTENS_DEVICE void multiply_back(int step) {
    rt_fl<16, kHalf> d_rows, d_values;
    const auto& map = half_of(shared.map, W);
    warpgroup::mma_fence(d_rows);
    this->multiply_window(d_rows, shared.d_scores, shared.window, step);
    warpgroup::mma_ABt(d_rows, shared.d_logits[0], map);
    warpgroup::mma_ABt(d_rows, shared.d_logits[1], map);
    warpgroup::mma_commit_group();
    if constexpr (Config::is_keys) {
      warpgroup::mma_fence(d_values);
      this->multiply_window(d_values, shared.weights, shared.window_values, step);
      warpgroup::mma_AB(d_values, shared.features[0], shared.state[W][0]);
      warpgroup::mma_AB(d_values, shared.features[1], shared.state[W][1]);
      warpgroup::mma_commit_group();
      warpgroup::mma_async_wait<1>(d_rows);
    } else {
      warpgroup::mma_async_wait<0>(d_rows);
    }
    this->await(base::kAtTiles);
    if (this->brings()) {
      this->request_rows(step + 1);
      this->request_window(step + 1);
    }
    warpgroup::store_unfenced(shared.d_scores[W], d_rows);
    if constexpr (Config::is_keys) {
      warpgroup::mma_async_wait<0>(d_values);
      this->meet();  // weights, features and the state have been read
      warpgroup::store_unfenced(shared.weights[W], d_values);
    }
    arch::fence_async_proxy();
    this->meet_own();  // the results of W are there
    this->store_gradients(step);
    if (step + 1 == run.count) return;  // nobody needs the state
    this->await_entering();
    this->multiply_into_state(this->entering_slot(step));
    warpgroup::mma_async_wait<0>(this->state);
    this->publish_state();
    this->arrive(base::kAtState);
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
