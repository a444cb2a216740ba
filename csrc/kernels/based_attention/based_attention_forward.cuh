// based_attention: the forward pass. (based_attention.cuh)
#pragma once

#include "kernels/based_attention/based_attention_walk.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class forward_walk : chunk_walk<Config> {
  using base = chunk_walk<Config>;
  using base::at, base::p, base::shared, base::state, base::stream, base::sums, base::kBarrier;
  using typename base::T;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    this->for_each_chunk([&](int token, float2) { attend(token); });
    if (this->signals()) tma::store_async_read_wait<0>();
  }

 private:
  // One chunk: its part of o, and the state behind it.
  KITTENS_DEVICE void attend(int token) {
    rt_fl<16, kChunk> s;
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.row_keys[at.stage], shared.keys[at.stage]);
    warpgroup::mma_commit_group();

    this->store_features();
    rt<T, 16, kKeys> q;
    load_fragment<false>(q.data[0], shared.row_keys[at.stage], this->warp_row(), 0);
    rt<T, 16, kColumns> features;
    make_features(features, q);
    rt_fl<16, kValues> o;
    warpgroup::mma_fence(features);
    warpgroup::mm_ABt(o, features, shared.state);
    warpgroup::mma_commit_group();

    float row_sums[2];
    if (p.normalize) sums.weigh(row_sums, q, p.scale);
    this->add_to_sums(token);
    warpgroup::mma_async_wait<1>(s);
    rt<T, 16, kChunk> weights;
    weigh_scores(s);
    if (p.normalize) finish_row_sums(row_sums, s);
    copy(weights, s);
    const auto v = this->transposed_values();
    if (this->signals()) tma::store_async_read_wait<0>();
    warpgroup::mma_async_wait<0>(o);
    // All have read the state, all features of k are there, all have read what they take of the
    // chunk, and what was stored last has left shared memory.
    warpgroup::sync(kBarrier);

    warpgroup::mma_fence(o, weights);
    warpgroup::mma_AB(o, weights, shared.values[at.stage]);
    warpgroup::mma_commit_group();
    this->add_to_state(v);
    warpgroup::mma_async_wait<1>(o);
    if (p.normalize) {
      typename rt_fl<16, kValues>::col_vec factors;
#pragma unroll
      for (int i = 0; i < 2; ++i) factors.data[i].set({1 / (row_sums[i] + p.eps)});
      mul_row(o, o, factors);
    }
    warpgroup::store(shared.o, o);
    warpgroup::mma_async_wait<0>(state);
    if (this->signals()) shared.chunks.release_after_mma(at);
    this->publish_state();
    warpgroup::sync(kBarrier);
    if (this->signals()) {
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
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
