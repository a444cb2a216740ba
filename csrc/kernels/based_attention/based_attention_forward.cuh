// based_attention: the forward pass, of both kernels. (based_attention.cuh,
// based_attention_generic.cuh)
#pragma once

#include "kernels/based_attention/based_attention_states.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class forward_walk : walk_of<Config> {
  using base = walk_of<Config>;
  using products = products_of<Config>;
  using base::at, base::p, base::shared, base::state, base::sums, base::kBarrier;
  using typename base::T;

 public:
  using base::base;

  KITTENS_DEVICE void consume() {
    this->for_each_chunk([&](int token, float2) { attend(token); });
  }

 private:
  using weights = rt<T, 16, products::kPart>;
  using scores = rt_fl<16, products::kPart>;

  // One chunk: its part of o, and the state behind it.
  KITTENS_DEVICE void attend(int token) {
    rt_fl<16, kValues> o;
    float row_sums[2];
    if constexpr (Config::generic) {
      attend_by_parts(o, row_sums, token);
    } else {
      attend_at_once(o, row_sums, token);
    }
    if (p.normalize) {
      typename rt_fl<16, kValues>::col_vec factors;
#pragma unroll
      for (int i = 0; i < 2; ++i) factors.data[i].set({1 / (row_sums[i] + p.eps)});
      mul_row(o, o, factors);
    }
    if constexpr (!Config::generic) products::store(shared.o, o);
    products::template mma_async_wait<0>(state);
    this->release();
    this->publish_state();
    this->meet();
    if constexpr (Config::generic) {  // where the values were, which all have read
      products::store(shared.values[at.stage], o);
      this->store_values(shared.values[at.stage], token);
    } else {
      this->store_values(shared.o, token);
      this->end_results();
    }
  }

  // o without its factors, the rows' weights, and the state behind the chunk: under way.
  KITTENS_DEVICE void attend_at_once(rt_fl<16, kValues>& o, float (&row_sums)[2], int token) {
    scores s;
    products::mma_fence();
    products::mm_ABt(s, shared.row_keys[at.stage], shared.keys[at.stage]);
    products::mma_commit_group();

    this->store_features();
    rt<T, 16, kKeys> q;
    load_fragment<false>(q.data[0], shared.row_keys[at.stage], this->warp_row(), 0);
    rt<T, 16, kColumns> features;
    make_features(features, q);
    products::mma_fence(features);
    products::mm_ABt(o, features, shared.state);
    products::mma_commit_group();

    if (p.normalize) sums.weigh(row_sums, q, p.scale);
    this->add_to_sums(token);
    products::template mma_async_wait<1>(s);
    weights w;
    weigh_scores(s);
    warpgroup::tril(s, s, 0, 0.0f);
    if (p.normalize) {
      add_weights(row_sums, s);
      finish_row_sums(row_sums);
    }
    copy(w, s);
    const auto v = this->transposed_values();
    this->await_results();
    products::template mma_async_wait<0>(o);
    // All have read the state, all features of k are there, all have read what they take of the
    // chunk, and what was stored last has left shared memory.
    warpgroup::sync(kBarrier);

    products::mma_fence(o, w);
    products::mma_AB(o, w, shared.values[at.stage]);
    products::mma_commit_group();
    this->add_to_state(v);
    products::template mma_async_wait<1>(o);
  }
  // The same: done.
  KITTENS_DEVICE void attend_by_parts(rt_fl<16, kValues>& o, float (&row_sums)[2], int token) {
    rt<T, 16, kKeys> q;
    load_fragment<false>(q.data[0], shared.row_keys[at.stage], this->warp_row(), 0);
    rt<T, 16, kColumns> features;
    make_features(features, q);
    products::mm_ABt(o, features, shared.state);
    if (p.normalize) sums.weigh(row_sums, q, p.scale);
    const int own = this->warp_row() / products::kPart;
#pragma unroll 1
    for (int part = 0; part <= own; ++part) {
      scores s;
      products::mm_ABt(s, q, products::part_of(shared.keys[at.stage], part));
      weigh_scores(s);
      if (part == own) tril(s, s, 0, 0.0f);
      if (p.normalize) add_weights(row_sums, s);
      weights w;
      copy(w, s);
      products::mma_AB(o, w, products::part_of(shared.values[at.stage], part));
    }
    if (p.normalize) finish_row_sums(row_sums);
    this->add_to_sums(token);
    warpgroup::sync(kBarrier);  // all have read the state
    this->add_to_state(this->transposed_values());
  }

  // A = 1 + s + s²/2 of the scores.
  KITTENS_DEVICE void weigh_scores(scores& s) const {
    const float scale = p.scale, square = 0.5f * scale * scale;
    map([=](float x) { return fmaf(fmaf(square, x, scale), x, 1.0f); }, s, s);
  }
  // Of this lane's columns alone, until they are finished.
  KITTENS_DEVICE static void add_weights(float (&sums)[2], const scores& of) {
#pragma unroll
    for (int i = 0; i < products::kPart / 4; ++i) {
      sums[i % 2] += of.data[0][2 * i] + of.data[0][2 * i + 1];
    }
  }
  KITTENS_DEVICE static void finish_row_sums(float (&sums)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] += arch::shuffle_xor(sums[i], 1);
      sums[i] += arch::shuffle_xor(sums[i], 2);
    }
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
