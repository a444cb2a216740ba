// based_attention: what a block's warpgroup does. (based_attention.cuh)
#pragma once

#include "kernels/based_attention/based_attention_sums.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class based_attention_consumer {
 public:
  KITTENS_DEVICE based_attention_consumer(const based_attention_arguments<Config>& p,
                                          based_attention_shared<Config>& shared)
      : p(p), shared(shared), stream(chunk_stream::of(p)) {}

  KITTENS_DEVICE void consume() {
    for (int step = 0; step < Config::stages - 1; ++step) request(step);
    load_state();
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step, at.advance()) {
      request(step + Config::stages - 1);
      const int token = stream.token(step);
      shared.chunks.wait_full(at);
      if constexpr (Config::outputs) {
        attend(token);
      } else {
        store_features();
        add_to_sums(token);
        const values_of_rows v = transposed_values();
        warpgroup::sync(kBarrier);  // all features are there, and all have read their values
        add_to_state(v);
        warpgroup::mma_async_wait<0>(state);
        warpgroup::sync(kBarrier);  // all products are done: the features may be overwritten
        if (signals()) shared.chunks.release_after_mma(at);
      }
    }
    store_state();
    if (Config::outputs && signals()) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using values_of_rows = rt<T, 16, kChunk>;  // vᵀ: [values, tokens]
  static constexpr int kBarrier = 1;
  const based_attention_arguments<Config>& p;
  based_attention_shared<Config>& shared;
  const chunk_stream stream;
  cursor<Config::stages> at, requested;
  rt_fl<16, kColumns> state;  // [values, columns of features]
  key_sums<T> sums;           // with p.normalize alone

  KITTENS_DEVICE bool signals() const { return arch::thread_id() == 0; }
  KITTENS_DEVICE static int warp_row() { return arch::warp_id() % 4 * 16; }

  // Has the chunk of a step brought, into the stage of the one before this.
  KITTENS_DEVICE void request(int step) {
    if (!signals() || step >= stream.count) return;
    constexpr int kBytes = (Config::outputs ? 2 : 1) * tma::bytes<typename Config::key_tile> +
                           tma::bytes<typename Config::value_tile>;
    const int token = stream.token(step), stage = requested.stage;
    const sequence_origin origin = sequence_origin::of(stream.batch);
    semaphore& full = shared.chunks.full[stage];
    shared.chunks.wait_empty(requested);
    shared.chunks.expect(requested, kBytes);
    tma::load_async(shared.k[stage], p.k, full, origin, token, stream.head);
    if constexpr (Config::outputs) {
      tma::load_async(shared.q[stage], p.q, full, origin, token, stream.head);
    }
    tma::load_async(shared.v[stage], p.v, full, origin, token, stream.head, stream.part * kValues);
    requested.advance();
  }

  // One chunk: its part of o, and the state behind it.
  KITTENS_DEVICE void attend(int token) {
    rt_fl<16, kChunk> s;
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.q[at.stage], shared.k[at.stage]);
    warpgroup::mma_commit_group();

    store_features();
    rt<T, 16, kKeys> q;
    load_fragment<false>(q.data[0], shared.q[at.stage], warp_row(), 0);
    rt<T, 16, kColumns> features;
    make_features(features, q);
    rt_fl<16, kValues> o;
    warpgroup::mma_fence(features);
    warpgroup::mm_ABt(o, features, shared.state);
    warpgroup::mma_commit_group();

    float row_sums[2];
    if (p.normalize) sums.weigh(row_sums, q, p.scale);
    add_to_sums(token);
    const values_of_rows v = transposed_values();
    warpgroup::mma_async_wait<1>(s);
    rt<T, 16, kChunk> weights;
    weigh_scores(s);
    copy(weights, s);
    if (signals()) tma::store_async_read_wait<0>();
    warpgroup::mma_async_wait<0>(o);
    // All have read the state, all features of k are there, all have read what they take of the
    // chunk, and what was stored last has left shared memory.
    warpgroup::sync(kBarrier);

    warpgroup::mma_fence(o, weights);
    warpgroup::mma_AB(o, weights, shared.v[at.stage]);
    warpgroup::mma_commit_group();
    add_to_state(v);
    if (p.normalize) finish_row_sums(row_sums, s);
    warpgroup::mma_async_wait<1>(o);
    if (p.normalize) {
      typename rt_fl<16, kValues>::col_vec factors;
#pragma unroll
      for (int i = 0; i < 2; ++i) factors.data[i].set({1 / (row_sums[i] + p.eps)});
      mul_row(o, o, factors);
    }
    warpgroup::store(shared.o, o);
    warpgroup::mma_async_wait<0>(state);
    if (signals()) shared.chunks.release_after_mma(at);
    publish_state();
    warpgroup::sync(kBarrier);
    if (signals()) {
      tma::store_async(p.o, shared.o, sequence_origin::of(stream.batch), token, stream.head,
                       stream.part * kValues);
      tma::store_commit_group();
    }
  }

  // A = 1 + s + s²/2 of the scores, and 0 where the column comes later.
  KITTENS_DEVICE void weigh_scores(rt_fl<16, kChunk>& s) {
    const float scale = p.scale, square = 0.5f * scale * scale;
    map([=](float x) { return fmaf(fmaf(square, x, scale), x, 1.0f); }, s, s);
    warpgroup::tril(s, s, 0, 0.0f);
  }
  KITTENS_DEVICE static void finish_row_sums(float (&sums)[2], const rt_fl<16, kChunk>& weights) {
#pragma unroll
    for (int i = 0; i < kChunk / 4; ++i) {
      sums[i % 2] += weights.data[0][2 * i] + weights.data[0][2 * i + 1];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] += arch::shuffle_xor(sums[i], 1);
      sums[i] += arch::shuffle_xor(sums[i], 2);
    }
  }

  // Of this warp's tokens of k, for the state's product: there after a barrier.
  KITTENS_DEVICE void store_features() {
    rt<T, 16, kKeys> k;
    load_fragment<false>(k.data[0], shared.k[at.stage], warp_row(), 0);
    rt<T, 16, kColumns> features;
    make_features(features, k);
    warpgroup::store(shared.features, features);
  }
  KITTENS_DEVICE void add_to_sums(int token) {
    if (!p.normalize) return;
    const int left = p.length - token;
    sums.add(shared.k[at.stage], left < kChunk ? left : kChunk);
  }
  // vᵀ as an operand in registers: the last that is loaded of the chunk.
  KITTENS_DEVICE values_of_rows transposed_values() {
    values_of_rows v;
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      load_fragment<true>(v.data[0] + 4 * i, shared.v[at.stage], i * 16, warp_row());
    }
    arch::fence_async_proxy();  // before the copy that will overwrite the chunk
    return v;
  }

  // state += vᵀ φ(k). Leaves the product under way.
  KITTENS_DEVICE void add_to_state(const values_of_rows& v) {
    warpgroup::mma_fence(state);
    warpgroup::mma_AB(state, v, shared.features);
    warpgroup::mma_commit_group();
  }

  // For the next chunk's product with features of q: there after a barrier.
  KITTENS_DEVICE void publish_state() {
    rt<T, 16, kColumns> weighted;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {  // pairs; group i / 2
      const float weight = weight_of_group(i / 2, p.scale);
      const bool one = i / 2 == kOne / 8 && arch::lane_id() % 4 == kOne % 8 / 2;
      weighted.data[0][i] =
          pack<T>(state.data[0][2 * i] * (one ? 1 : weight), state.data[0][2 * i + 1] * weight);
    }
    warpgroup::store(shared.state, weighted);
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
      const int row = column.row(p.keys);
      if (value >= p.values || row < 0) continue;
      f(state.data[0][i], sqrtf(column.weight(p.scale)),
        data + (head * p.features + row) * p.values + value);
    }
  }
  KITTENS_DEVICE int64_t head() const { return int64_t{stream.batch} * p.heads + stream.head; }
  KITTENS_DEVICE int64_t head_of(int segment) const {
    return int64_t{segment} * p.batch * p.heads + head();
  }

  KITTENS_DEVICE void add_states(int64_t of_head, const float* states, const float* of_sums) {
    for_each(of_head, states,
             [](float& x, float root, const float* from) { x += arch::load_global(from) / root; });
    if (p.normalize) sums.add(of_sums + of_head * p.features, p.keys, p.scale);
  }
  // The state before the segment: the initial one, and what the segments before it add.
  KITTENS_DEVICE void load_state() {
    zero(state);
    sums.clear();
    if constexpr (Config::outputs) {
      if (p.initial_state != nullptr) add_states(head(), p.initial_state, p.initial_sums);
#pragma unroll 1
      for (int i = 0; i < stream.segment; ++i) {
        add_states(head_of(i), p.segment_states, p.segment_sums);
      }
      publish_state();
      warpgroup::sync(kBarrier);
    }
  }
  KITTENS_DEVICE void store_state() {
    float* states = p.segment_states;
    float* of_sums = p.segment_sums;
    int64_t of_head = head_of(stream.segment);
    if constexpr (Config::outputs) {
      if (p.final_state == nullptr || stream.segment != p.segments - 1) return;
      states = p.final_state;
      of_sums = p.final_sums;
      of_head = head();
    }
    for_each(of_head, states, [](float x, float root, const float* to) {
      arch::store_global(const_cast<float*>(to), x * root);
    });
    if (p.normalize && stream.part == 0 && arch::warp_id() == 0) {
      sums.store(of_sums + of_head * p.features, p.keys, p.scale);
    }
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
