// linear attention: a consumer. One warpgroup has 64 columns of v and o, and their state
// in its registers. (linear_attention_chunkwise.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_decays.cuh"
#include "kernels/linear_attention/linear_attention_state.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class linear_attention_consumer {
 public:
  // w: which of the consumers this warpgroup is.
  KITTENS_DEVICE linear_attention_consumer(const linear_attention_arguments<Config>& p,
                                           linear_attention_chunkwise_shared<Config>& shared, int w)
      : p(p), shared(shared), w(w), stream(chunk_stream::of(p)) {}

  KITTENS_DEVICE void consume() {
    if (stream.is_empty()) return;
    for (int step = 0; step < Config::stages - 1; ++step) request(step);
    load_state(p, stream, w, state);
    if constexpr (Config::outputs) {
      publish_state();
      warpgroup::sync(kBarrier + w);
    }
    chunk_decays::loaded next;
    if (stream.count > 0) next = chunk_decays::load(p, stream, stream.template token<Config>(0));
    float decay = 0;  // log₂
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step, at.advance()) {
      request(step + Config::stages - 1);
      const int token = stream.template token<Config>(step);
      const auto decays = chunk_decays::of(p, next, shared.decay[w * 4 + arch::warp_id() % 4]);
      if (step + 1 < stream.count) {
        next = chunk_decays::load(p, stream, stream.template token<Config>(step + 1));
      }
      shared.chunks.wait_full(at);
      if constexpr (Config::outputs) {
        attend(decays, token);
      } else {
        const values_of_rows v = decayed_values(decays);
        warpgroup::sync(kBarrier + w);  // all have read the values
        add_to_state(v, decays.total);
        warpgroup::mma_async_wait<0>(state);
        if (signals()) shared.chunks.release_after_mma(at);
        decay += decays.total;
      }
    }
    store_state(p, stream, w, state, decay);
    if (Config::outputs && signals()) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using scores = chunk_decays::scores;
  using values_of_rows = rt<T, 16, kChunk>;  // vᵀ: [values, tokens]
  static constexpr int kBarrier = 1;         // one a consumer
  const linear_attention_arguments<Config>& p;
  linear_attention_chunkwise_shared<Config>& shared;
  const int w;
  const chunk_stream stream;
  cursor<Config::stages> at, requested;
  rt_fl<16, Config::key_width> state;  // [values, keys]

  KITTENS_DEVICE bool skips() const { return Config::weighted && p.skip != nullptr; }
  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }

  // Has the chunk of a step brought, into the stage of the one before this, which each consumer
  // gives back by itself. One thread does it for all of them.
  KITTENS_DEVICE void request(int step) {
    if (arch::thread_id() != 0 || step >= stream.count) return;
    constexpr int kBytes = (Config::outputs ? 2 : 1) * tma::bytes<typename Config::key_tile> +
                           Config::consumers * tma::bytes<typename Config::value_tile>;
    const int token = stream.template token<Config>(step), stage = requested.stage;
    const sequence_origin& origin = stream.origin;
    semaphore& full = shared.chunks.full[stage];
    shared.chunks.wait_empty(requested);
    shared.chunks.expect(requested, kBytes);
    tma::load_async(shared.k[stage], p.k, full, origin, token, stream.head / p.k_share);
    if constexpr (Config::outputs) {
      tma::load_async(shared.q[stage], p.q, full, origin, token, stream.head / p.q_share);
    }
    for (int i = 0; i < Config::consumers; ++i) {
      tma::load_async(shared.v[stage][i], p.v, full, origin, token, stream.head / p.v_share,
                      i * kValues);
    }
    requested.advance();
  }

  // One chunk: its part of o, and the state behind it.
  KITTENS_DEVICE void attend(const chunk_decays& decays, int token) {
    scores s;
    rt_fl<16, kValues> o;
    warpgroup::mma_fence();
    warpgroup::mm_ABt(s, shared.q[at.stage], shared.k[at.stage]);
    warpgroup::mm_ABt(o, shared.q[at.stage], shared.state[w]);
    warpgroup::mma_commit_group();
    values_of_rows v = decayed_values(decays);
    warpgroup::mma_async_wait<0>(s, o);
    if (signals()) tma::store_async_read_wait<0>();
    // All have read the values and the state, and what was stored last has left shared memory.
    warpgroup::sync(kBarrier + w);
    add_to_state(v, decays.total);

    if (Config::weighted && p.own_scores != nullptr && w == 0) store_own_scores(s, token);
    rt<T, 16, kChunk> weights;
    decay_scores(s, decays);
    copy(weights, s);
    typename chunk_decays::of_rows since_state;  // from the state to the row
    if constexpr (Config::reverse) {
      sub(since_state, decays.rows, decays.total);
      mul(since_state, since_state, -1.0f);
    } else {
      copy(since_state, decays.rows);
    }
    exp2(since_state, since_state);
    mul_row(o, o, since_state);
    warpgroup::mma_fence(o);
    warpgroup::mma_AB(o, weights, shared.v[at.stage][w]);
    warpgroup::mma_commit_group();

    warpgroup::mma_async_wait<1>(state);
    publish_state();
    warpgroup::mma_async_wait<0>(o);
    if (signals() && !skips()) shared.chunks.release_after_mma(at);
    mul(o, o, p.scale);
    if (p.dots != nullptr) store_dots(o, token);
    // (Loaded before, these would be spilled: there are no registers to spare.)
    if (Config::weighted && p.o_weights != nullptr) mul_row(o, o, load_row_weights(token));
    if (skips()) add_skipping(o);
    warpgroup::store(shared.o[w], o);
    warpgroup::sync(kBarrier + w);
    if (signals()) {
      if (skips()) shared.chunks.release_after_mma(at);
      tma::store_async(p.o, shared.o[w], stream.origin, token, stream.head, w * kValues);
      tma::store_commit_group();
    }
  }

  // Of o's rows, 1 without.
  KITTENS_DEVICE typename chunk_decays::of_rows load_row_weights(int token) const {
    float weights[2] = {1, 1};
    const int row = token + arch::warp_id() % 4 * 16 + arch::lane_id() / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!Config::weighted || p.o_weights == nullptr || row + half * 8 >= stream.length) continue;
      weights[half] =
          arch::load_global(stream.of_token(p.o_weights, p.weight_strides, row + half * 8));
    }
    typename chunk_decays::of_rows of_rows;
    of_rows.data[0].set({weights[0]});
    of_rows.data[1].set({weights[1]});
    return of_rows;
  }

  // o += skip · v. The values are read until the next barrier.
  KITTENS_DEVICE void add_skipping(rt_fl<16, kValues>& o) const {
    const float skip = arch::load_global(p.skip + stream.head);
    rt<T, 16, kValues> v;
    warpgroup::load(v, shared.v[at.stage][w]);
#pragma unroll
    for (int i = 0; i < kValues / 4; ++i) {
      float x, y;
      unpack<T>(x, y, v.data[0][i]);
      o.data[0][2 * i] = fmaf(skip, x, o.data[0][2 * i]);
      o.data[0][2 * i + 1] = fmaf(skip, y, o.data[0][2 * i + 1]);
    }
  }

  // Of row i and column j, times the decays from the earlier of the two to the later; 0 where the
  // column comes later in the recurrence.
  KITTENS_DEVICE void decay_scores(scores& s, const chunk_decays& decays) {
    scores d;
    if constexpr (Config::reverse) {
      broadcast_col(d, decays.columns);
      sub_row(d, d, decays.rows);
      warpgroup::triu(d, d, 0, -INFINITY);
    } else {
      broadcast_row(d, decays.rows);
      sub_col(d, d, decays.columns);
      warpgroup::tril(d, d, 0, -INFINITY);
    }
    exp2(d, d);
    mul(s, s, d);
  }

  // vᵀ, decayed from each token to the chunk's end in the recurrence: as an operand in registers.
  KITTENS_DEVICE values_of_rows decayed_values(const chunk_decays& decays) {
    values_of_rows v;
    const int lane = arch::lane_id();
    const int column = arch::warp_id() % 4 * 16 + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      uint32_t words[4];
      arch::load_matrix<true>(words,
                              &shared.v[at.stage][w](i * 16 + lane / 16 * 8 + lane % 8, column));
#pragma unroll
      for (int j = 0; j < 4; ++j) v.data[0][4 * i + j] = words[j];
    }
    typename chunk_decays::of_columns to_end;
    if constexpr (Config::reverse) {
      copy(to_end, decays.columns);
    } else {
      sub(to_end, decays.columns, decays.total);
      mul(to_end, to_end, -1.0f);
    }
    exp2(to_end, to_end);
    mul_col(v, v, to_end);
    arch::fence_async_proxy();  // before the copy that will overwrite the values
    return v;
  }

  // state = state · decay of the chunk + vᵀ k. Leaves the product under way.
  KITTENS_DEVICE void add_to_state(const values_of_rows& v, float total) {
    mul(state, state, arch::exp2_approx(total));
    warpgroup::mma_fence(state);
    warpgroup::mma_AB(state, v, shared.k[at.stage]);
    warpgroup::mma_commit_group();
  }

  // For the next chunk's product: there after a barrier.
  KITTENS_DEVICE void publish_state() { warpgroup::store(shared.state[w], state); }

  // Σ o ∘ dotted over this consumer's columns, of each row.
  KITTENS_DEVICE void store_dots(const rt_fl<16, kValues>& o, int token) {
    using tile = rt_fl<16, kValues>;
    const int lane = arch::lane_id();
    const auto& [batch_stride, token_stride, head_stride] = p.dotted_strides;
    const T* const head = p.dotted + stream.batch * batch_stride + stream.start * token_stride +
                          stream.head / p.dotted_share * head_stride + w * kValues;
    float sums[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kValues / 4; ++i) {
      const int row = token + arch::warp_id() % 4 * 16 + tile::across(0, i % 4, lane);
      const int column = tile::along(i / 4, i % 4, lane);
      if (row >= stream.length || w * kValues + column >= p.values) continue;
      float x, y;
      unpack<T>(
          x, y,
          arch::load_global(reinterpret_cast<const uint32_t*>(head + row * token_stride + column)));
      sums[i % 2] = fmaf(o.data[0][2 * i], x, fmaf(o.data[0][2 * i + 1], y, sums[i % 2]));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sums[half] + arch::shuffle_xor(sums[half], 1);
      sum += arch::shuffle_xor(sum, 2);
      const int row = token + arch::warp_id() % 4 * 16 + half * 8 + lane / 4;
      if (lane % 4 != 0 || row >= stream.length) continue;
      arch::store_global(p.dots + stream.place(p, row) * Config::consumers + w, sum);
    }
  }

  // The diagonal of the scores: q · k of each token.
  KITTENS_DEVICE void store_own_scores(const scores& s, int first_token) {
    const int lane = arch::lane_id();
#pragma unroll
    for (int i = 0; i < kChunk / 4; ++i) {
      const int row = arch::warp_id() % 4 * 16 + scores::across(0, i % 4, lane);
      const int beyond = row - scores::along(i / 4, i % 4, lane);
      if ((beyond != 0 && beyond != 1) || first_token + row >= stream.length) continue;
      arch::store_global(p.own_scores + stream.place(p, first_token + row),
                         beyond == 0 ? s.data[0][2 * i] : s.data[0][2 * i + 1]);
    }
  }
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
