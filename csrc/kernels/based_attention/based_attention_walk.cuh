// based_attention for Hopper: chunks that TMA brings, and results that it takes away.
// (based_attention.cuh)
#pragma once

#include "kernels/based_attention/based_attention_state.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class chunk_walk : protected pass_state<Config> {
  using base = pass_state<Config>;

 public:
  using base::base;

 protected:
  using base::at, base::p, base::shared, base::state, base::stream, base::kBarrier;
  using typename base::T;
  cursor<Config::stages> requested;

  KITTENS_DEVICE bool signals() const { return arch::thread_id() == 0; }

  // f(the first token) for each chunk of the segment, once it is there.
  template <class F>
  KITTENS_DEVICE void for_each_chunk(F f) {
    for (int step = 0; step < Config::stages - 1; ++step) request(step);
    this->load_state();
    float2 next = this->load_factors(0);
    this->store_factors(next);
    warpgroup::sync(kBarrier);
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step, at.advance()) {
      request(step + Config::stages - 1);
      next = this->load_factors(step + 1);
      shared.chunks.wait_full(at);
      f(this->token(step), next);
    }
    this->store_state();
    if (Config::outputs && signals()) tma::store_async_read_wait<0>();
  }

  // The features of this warp's keys into shared memory, for the state's product: there after a
  // barrier.
  KITTENS_DEVICE void store_features() {
    rt<T, 16, kKeys> keys;
    load_fragment<false>(keys.data[0], shared.keys[at.stage], this->warp_row(), 0);
    rt<T, 16, kColumns> features;
    make_features(features, keys);
    warpgroup::store(shared.features, features);
  }
  // The values, the last that is loaded of the chunk.
  KITTENS_DEVICE base::values_of_rows transposed_values() {
    const auto v = this->load_values();
    fence_reads();
    return v;
  }
  KITTENS_DEVICE void fence_reads() { arch::fence_async_proxy(); }  // before copies overwrite it
  // state += values · features of keys. Leaves the product under way.
  KITTENS_DEVICE void add_to_state(const base::values_of_rows& v) {
    warpgroup::mma_fence(state);
    warpgroup::mma_AB(state, v, shared.features);
    warpgroup::mma_commit_group();
  }
  // Once all products with the chunk are done, and all have met.
  KITTENS_DEVICE void release() {
    if (signals()) shared.chunks.release_after_mma(at);
  }
  // All meet, over what they have written: of the next chunk's products, and results.
  KITTENS_DEVICE void meet() { warpgroup::sync(kBarrier); }

  // What was stored last has left shared memory, once all have met.
  KITTENS_DEVICE void await_results() {
    if (signals()) tma::store_async_read_wait<0>();
  }
  // Stores what all have written, from a token on.
  KITTENS_DEVICE void store_values(Config::value_tile& tile, int token) {
    store(p.o, tile, token, stream.part * kValues);
  }
  KITTENS_DEVICE void store_key_gradients(Config::key_tile& tile, int token) {
    store(p.key_gradients, tile, token, 0);
  }
  KITTENS_DEVICE void end_results() {
    if (signals()) tma::store_commit_group();
  }

 private:
  template <class Map, class Tile>
  KITTENS_DEVICE void store(const Map& to, Tile& tile, int token, int column) {
    if (!signals()) return;
    tma::store_async(to, tile, sequence_origin::of(stream.batch), token, stream.head, column);
  }
  // Has the chunk of a step brought, into the stage of the one before this.
  KITTENS_DEVICE void request(int step) {
    if (!signals() || step >= stream.count) return;
    using key_tile = typename Config::key_tile;
    using value_tile = typename Config::value_tile;
    constexpr int kBytes = (Config::outputs ? 2 : 1) * tma::bytes<key_tile> +
                           (Config::differentiates ? 2 : 1) * tma::bytes<value_tile>;
    const int first = this->token(step), stage = requested.stage, column = stream.part * kValues;
    const sequence_origin origin = sequence_origin::of(stream.batch);
    semaphore& full = shared.chunks.full[stage];
    shared.chunks.wait_empty(requested);
    shared.chunks.expect(requested, kBytes);
    tma::load_async(shared.keys[stage], p.keys, full, origin, first, stream.head);
    if constexpr (Config::outputs) {
      tma::load_async(shared.row_keys[stage], p.row_keys, full, origin, first, stream.head);
    }
    tma::load_async(shared.values[stage], p.values, full, origin, first, stream.head, column);
    if constexpr (Config::differentiates) {
      tma::load_async(shared.row_values[stage], p.row_values, full, origin, first, stream.head,
                      column);
    }
    requested.advance();
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
