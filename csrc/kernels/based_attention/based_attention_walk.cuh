// based_attention: what all passes share: chunks that are brought, and the state that goes along.
// (based_attention.cuh)
#pragma once

#include "kernels/based_attention/based_attention_sums.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class chunk_walk {
 public:
  KITTENS_DEVICE chunk_walk(const based_attention_arguments<Config>& p,
                            based_attention_shared<Config>& shared)
      : p(p), shared(shared), stream(chunk_stream::of(p)) {}

 protected:
  using T = typename Config::type;
  using values_of_rows = rt<T, 16, kChunk>;  // transposed: [values, tokens]
  using of_tokens = key_sums<T>::of_tokens;
  static constexpr int kBarrier = 1;
  const based_attention_arguments<Config>& p;
  based_attention_shared<Config>& shared;
  const chunk_stream stream;
  cursor<Config::stages> at, requested;
  rt_fl<16, kColumns> state;  // [values, columns of features]
  key_sums<T> sums;           // with p.normalize alone

  KITTENS_DEVICE bool signals() const { return arch::thread_id() == 0; }
  KITTENS_DEVICE static int warp_row() { return arch::warp_id() % 4 * 16; }
  KITTENS_DEVICE int token(int step) const { return stream.template token<Config>(step); }
  // Whether the values have factors, in shared memory.
  KITTENS_DEVICE bool has_factors() const { return Config::reverse && p.normalize; }

  // f(the first token) for each chunk of the segment, once it is there.
  template <class F>
  KITTENS_DEVICE void for_each_chunk(F f) {
    for (int step = 0; step < Config::stages - 1; ++step) request(step);
    load_state();
    float2 next = load_factors(0);
    store_factors(next);
    warpgroup::sync(kBarrier);
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step, at.advance()) {
      request(step + Config::stages - 1);
      next = load_factors(step + 1);
      shared.chunks.wait_full(at);
      f(token(step), next);
    }
    store_state();
  }

  // The factors of the values of the chunk of a step, by one thread a token …
  KITTENS_DEVICE float2 load_factors(int step) const {
    if (!has_factors() || step >= stream.count || arch::thread_id() >= kChunk) return {};
    return arch::load_global(p.factors + factor_row(token(step)) + arch::thread_id());
  }
  // … into shared memory, between two barriers.
  KITTENS_DEVICE void store_factors(float2 factors) {
    if (!has_factors() || arch::thread_id() >= kChunk) return;
    shared.factors[0].data[arch::thread_id()] = factors.x;
    shared.factors[1].data[arch::thread_id()] = factors.y;
  }
  KITTENS_DEVICE int64_t factor_row(int token) const {
    return head() * ((p.length + kChunk - 1) / kChunk * kChunk) + token;
  }

  // The features of this warp's keys into shared memory, for the state's product: there after a
  // barrier.
  KITTENS_DEVICE void store_features() {
    rt<T, 16, kKeys> keys;
    load_fragment<false>(keys.data[0], shared.keys[at.stage], warp_row(), 0);
    rt<T, 16, kColumns> features;
    make_features(features, keys);
    warpgroup::store(shared.features, features);
  }
  KITTENS_DEVICE void add_to_sums(int token) {
    if (!p.normalize) return;
    if constexpr (Config::reverse) {
      of_tokens weights;
      load(weights, shared.factors[1]);
      sums.add(shared.keys[at.stage], weights);
    } else {
      const int left = p.length - token;
      sums.add(shared.keys[at.stage], left < kChunk ? left : kChunk);
    }
  }
  // The values, transposed and times their factors, as an operand in registers: the last that is
  // loaded of the chunk.
  KITTENS_DEVICE values_of_rows transposed_values() {
    values_of_rows v;
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      load_fragment<true>(v.data[0] + 4 * i, shared.values[at.stage], i * 16, warp_row());
    }
    if (has_factors()) {
      of_tokens factors;
      load(factors, shared.factors[0]);
      mul_col(v, v, factors);
    }
    arch::fence_async_proxy();  // before the copy that will overwrite the chunk
    return v;
  }
  // state += values · features of keys. Leaves the product under way.
  KITTENS_DEVICE void add_to_state(const values_of_rows& v) {
    warpgroup::mma_fence(state);
    warpgroup::mma_AB(state, v, shared.features);
    warpgroup::mma_commit_group();
  }
  // For the next chunk's products: there after a barrier.
  KITTENS_DEVICE void publish_state() {
    rt<T, 16, kColumns> weighted;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {  // pairs, two a group
      const float weight = weight_of_group(i / 2, p.scale);
      const bool one = i / 2 == kOne / 8 && arch::lane_id() % 4 == kOne % 8 / 2;
      weighted.data[0][i] =
          pack<T>(state.data[0][2 * i] * (one ? 1 : weight), state.data[0][2 * i + 1] * weight);
    }
    warpgroup::store(shared.state, weighted);
  }

 private:
  // Has the chunk of a step brought, into the stage of the one before this.
  KITTENS_DEVICE void request(int step) {
    if (!signals() || step >= stream.count) return;
    using key_tile = typename Config::key_tile;
    using value_tile = typename Config::value_tile;
    constexpr int kBytes = (Config::outputs ? 2 : 1) * tma::bytes<key_tile> +
                           (Config::differentiates ? 2 : 1) * tma::bytes<value_tile>;
    const int first = token(step), stage = requested.stage, column = stream.part * kValues;
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

  // f(this lane's element of the state, what it is of, where it is in memory) for each that exists.
  template <class F>
  KITTENS_DEVICE void for_each(int64_t head, const float* data, F f) {
    using tile = rt_fl<16, kColumns>;
    const int lane = arch::lane_id();
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const int value = stream.part * kValues + warp_row() + tile::across(0, i / 2 % 4, lane);
      const auto column = feature_column::of(tile::along(i / 8, i / 2 % 4, lane) + i % 2);
      const int row = column.row(p.key_width);
      if (value >= p.value_width || row < 0) continue;
      f(state.data[0][i], sqrtf(column.weight(p.scale)),
        data + (head * p.features + row) * p.value_width + value);
    }
  }
  KITTENS_DEVICE int64_t head() const { return int64_t{stream.batch} * p.heads + stream.head; }
  KITTENS_DEVICE int64_t head_of(int segment) const {
    return int64_t{segment} * p.batch * p.heads + head();
  }

  KITTENS_DEVICE void add_states(int64_t of_head, const float* states, const float* of_sums) {
    if (states != nullptr) {
      for_each(of_head, states, [](float& x, float root, const float* from) {
        x += arch::load_global(from) / root;
      });
    }
    if (p.normalize && of_sums != nullptr) {
      sums.add(of_sums + of_head * p.features, p.key_width, p.scale);
    }
  }
  // The state before the segment: the initial one, and what the segments before it add.
  KITTENS_DEVICE void load_state() {
    zero(state);
    sums.clear();
    if constexpr (Config::outputs) {
      add_states(head(), p.initial_state, p.initial_sums);
      constexpr int kNext = Config::reverse ? -1 : 1;
#pragma unroll 1
      for (int i = Config::reverse ? p.segments - 1 : 0; i != stream.segment; i += kNext) {
        add_states(head_of(i), p.segment_states, p.segment_sums);
      }
      publish_state();
    }
  }
  KITTENS_DEVICE void store_state() {
    float* states = p.segment_states;
    float* of_sums = p.segment_sums;
    int64_t of_head = head_of(stream.segment);
    if constexpr (Config::outputs) {
      if (stream.segment != (Config::reverse ? 0 : p.segments - 1)) return;
      states = p.final_state;
      of_sums = p.final_sums;
      of_head = head();
    }
    if (states != nullptr) {
      for_each(of_head, states, [](float x, float root, const float* to) {
        arch::store_global(const_cast<float*>(to), x * root);
      });
    }
    if (p.normalize && of_sums != nullptr && stream.part == 0 && arch::warp_id() == 0) {
      sums.store(of_sums + of_head * p.features, p.key_width, p.scale);
    }
  }
};

// The states that segments add.
template <class Config>
class state_walk : chunk_walk<Config> {
  using base = chunk_walk<Config>;
  using base::at, base::shared, base::state, base::kBarrier;

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
      warpgroup::mma_async_wait<0>(state);
      warpgroup::sync(kBarrier);  // all products are done: the features may be overwritten
      if (this->signals()) shared.chunks.release_after_mma(at);
    });
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
