// based_attention: the states that segments add, of both kernels. (based_attention.cuh,
// based_attention_generic.cuh)
#pragma once

#include "kernels/based_attention/based_attention_generic_walk.cuh"
#include "kernels/based_attention/based_attention_walk.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
using walk_of = std::conditional_t<Config::generic, generic_walk<Config>, chunk_walk<Config>>;

template <class Config>
class state_walk : walk_of<Config> {
  using base = walk_of<Config>;
  using base::state, base::kBarrier;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    this->for_each_chunk([&](int token, float2 next) {
      this->store_features();
      this->add_to_sums(token);
      const auto v = this->transposed_values();
      warpgroup::sync(kBarrier);  // all features are there, and all have read the chunk
      this->add_to_state(v);
      this->store_factors(next);
      products_of<Config>::template mma_async_wait<0>(state);
      this->meet();  // all products are done: the features may be overwritten
      this->release();
    });
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
