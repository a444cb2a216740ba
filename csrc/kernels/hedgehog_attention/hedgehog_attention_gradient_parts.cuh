// hedgehog attention: what the blocks that enter in a part of a run add to the state of the
// backward. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_base.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class part_state_walk : gradient_base<Config, all_values> {
  using base = gradient_base<Config, all_values>;
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
    float2 factors[2] = {};
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
