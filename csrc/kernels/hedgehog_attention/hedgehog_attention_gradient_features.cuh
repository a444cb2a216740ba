// hedgehog attention: a warpgroup of the backward that has the features of one softmax, of rows and
// of what enters the state, and the gradient of the map. (hedgehog_attention_gradient.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_base.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class feature_walk : gradient_base<Config, half_of_values<0>> {
  using base = gradient_base<Config, half_of_values<0>>;
  using base::W, base::entering_block, base::half_of, base::p, base::run, base::shared;
  using typename base::scores;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    this->load_state();
    zero(d_map);
    this->meet();  // the state is there
    wait(shared.map_full, 0);
#pragma unroll 1
    for (int step = 0; step < run.count; ++step) {
      differentiate(step);
      multiply_back(step);
    }
    warpgroup::store(p.map_parts + (this->part() * 2 + W) * kBlock * kHalf, d_map, kHalf);
  }

 private:
  rt_fl<16, kHalf> d_map;  // rows 64 W … of the map's gradient

  // The gradient of the rows' logits, and of keys their features, into shared memory.
  KITTENS_DEVICE void differentiate(int step) {
    typename base::packed f;
    find_features(f, step);
    scores g;  // the state times the rows' values
    wait(shared.row_values_full, step % 2);
    warpgroup::mma_fence(g);
    warpgroup::mm_ABt(g, half_of(shared.row_values, 0), shared.state[0][W]);
    warpgroup::mma_ABt(g, half_of(shared.row_values, 1), shared.state[1][W]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(g);
    const auto z = this->state_sums();
    if constexpr (Config::is_queries) {
      this->add_up_features(f, g, z);
      this->meet();  // all sums are there
      this->stay_packed(f);
      this->differentiate_logits(f, g, z, step);
    } else {
      this->differentiate_features(f, g, z);
    }
    warpgroup::store(shared.d_logits[W], g);
    this->arrive(base::kAtOperands);
    this->meet_half(base::kAtLogits);  // both have stored theirs
  }
  // Packed, for there are no registers for float32 beside the state, the map's gradient and g.
  // (That features of keys are stored with a fence has ptxas compute them before it asks for g;
  // without one it spills some 270 bytes, not 40.)
  KITTENS_DEVICE void find_features(typename base::packed& f, int step) {
    logits x;
    wait(shared.rows_full, step % 2);
    warpgroup::mma_fence(x);
    warpgroup::mm_AB(x, shared.rows, shared.map);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(x);
    this->soften(x);
    if constexpr (Config::is_keys) warpgroup::store(shared.features[W], x);
    copy(f, x);
    this->stay_packed(f);
  }

  // Adds to the map's gradient; and what enters becomes part of the state.
  KITTENS_DEVICE void multiply_back(int step) {
    const int entering = this->entering_slot(step);
    const auto& own = half_of(shared.rows, W);
    logits x;
    float2 factors[2] = {};
    if constexpr (Config::is_keys) this->load_factors(factors, entering_block(step));
    wait(shared.window_full, step % 2);
    this->multiply_entering(x, entering);
    warpgroup::mma_fence(d_map);
    warpgroup::mma_AtB(d_map, own, shared.d_logits[0]);
    warpgroup::mma_AtB(d_map, own, shared.d_logits[1]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<0>(x, d_map);
    this->arrive(base::kAtTiles);
    this->soften_entering(x, entering_block(step), factors);
    if constexpr (Config::is_keys) this->meet();  // features and the state have been read
    if (step + 1 == run.count) return;            // nobody needs the state
    warpgroup::store(shared.features[W], x);
    this->meet_own();  // all features of W are there
    this->arrive_entering();
    // That the window's values are there its warpgroups have seen, and met this one since.
    this->multiply_into_state(entering);
    this->add_to_state_sums();
    warpgroup::mma_async_wait<0>(this->state);
    this->publish_state();
    this->await(base::kAtState);
    if (this->brings()) this->request_window_values(step + 1);
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
