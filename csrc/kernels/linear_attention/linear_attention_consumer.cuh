// linear attention: a consumer. One warpgroup has 64 columns of v and o, and their state
// in its registers. (linear_attention_chunkwise.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_decays.cuh"
#include "kernels/linear_attention/linear_attention_state.cuh"
#include "kernels/linear_attention/linear_attention_values.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class linear_attention_consumer {
 public:
  // w: which of the consumers this warpgroup is.
  KITTENS_DEVICE linear_attention_consumer(const linear_attention_arguments<Config>& p,
                                           linear_attention_chunkwise_shared<Config>& shared, int w)
      : p(p), shared(shared), w(w), stream(chunk_stream::of<Config>(p, arch::block_x())) {}

  KITTENS_DEVICE void consume() {
    if (stream.is_empty()) return;
    for (int step = 0; step < Config::stages - 1; ++step) request(step);
    load_state<Config>(p, stream, w, state);
    if constexpr (Config::outputs) {
      publish_state();
      warpgroup::sync(kBarrier + w);
    }
    decays_type decays(load_decays(0), shared.decay[w * 4 + arch::warp_id() % 4]);
    float decay = 0;  // log₂
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step, at.advance()) {
      request(step + Config::stages - 1);
      const loaded_decays next = load_decays(step + 1);
      shared.chunks.wait_full(at);
      if constexpr (Config::outputs) {
        attend(decays, next, stream.template token<Config>(step));
      } else {
        const values_of_rows v = decayed_values(decays);
        warpgroup::sync(kBarrier + w);  // all have read the values
        add_to_state(v, decays.total);
        decay += decays.total;
        decays.set(next);
        warpgroup::mma_async_wait<0>(state);
        if (signals()) shared.chunks.release_after_mma(at);
      }
    }
    store_state<Config>(p, stream, w, state, decay);
    if (Config::outputs && signals()) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using decays_type = chunk_decays<Config>;
  using loaded_decays = typename decays_type::loaded;
  using values_of_rows = rt<T, 16, kChunk>;  // vᵀ: [values, tokens]
  static constexpr int kBarrier = 1;         // one a consumer
  const linear_attention_arguments<Config>& p;
  linear_attention_chunkwise_shared<Config>& shared;
  const int w;
  const chunk_stream stream;
  cursor<Config::stages> at, requested;
  uint32_t dotted_phase = 0;
  rt_fl<16, Config::key_width> state;  // [values, keys]

  KITTENS_DEVICE bool skips() const { return Config::weighted && p.skip != nullptr; }
  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == 0; }

  // Of the chunk of a step, ahead of it; or of none.
  KITTENS_DEVICE loaded_decays load_decays(int step) const {
    if (step >= stream.count) return {};
    return decays_type::load(p, stream, stream.template token<Config>(step));
  }

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

  // One chunk: its part of o, and the state behind it. Leaves the decays of the next one.
  KITTENS_DEVICE void attend(decays_type& decays, const loaded_decays& next, int token) {
    typename decays_type::scores s;
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
    if (signals() && p.dots != nullptr) request_dotted(token);
    add_to_state(v, decays.total);

    if (Config::weighted && p.own_scores != nullptr && w == 0) store_own_scores(s, token);
    const rt<T, 16, kChunk> weights = decays.weights_of(s);
    mul_row(o, o, decays.before_scores());
    warpgroup::mma_fence(o);
    warpgroup::mma_AB(o, weights, shared.v[at.stage][w]);
    warpgroup::mma_commit_group();
    typename decays_type::of_rows scales = decays.after_scores();
    mul(scales, scales, p.scale);
    decays.set(next);

    warpgroup::mma_async_wait<1>(state);
    publish_state();
    warpgroup::mma_async_wait<0>(o);
    if (signals() && !skips()) shared.chunks.release_after_mma(at);
    mul_row(o, o, scales);
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
  KITTENS_DEVICE typename decays_type::of_rows load_row_weights(int token) const {
    float weights[2] = {1, 1};
    const int row = token + arch::warp_id() % 4 * 16 + arch::lane_id() / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!Config::weighted || p.o_weights == nullptr || row + half * 8 >= stream.length) continue;
      weights[half] =
          arch::load_global(stream.of_token(p.o_weights, p.weight_strides, row + half * 8));
    }
    typename decays_type::of_rows of_rows;
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

  // vᵀ, decayed from each token to the chunk's end in the recurrence: as an operand in registers.
  KITTENS_DEVICE values_of_rows decayed_values(const decays_type& decays) {
    values_of_rows v;
    load_values(v, shared.v[at.stage][w], arch::warp_id() % 4 * 16);
    mul_col(v, v, decays.to_end());
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

  // What o's rows are multiplied by comes to where o will go out from.
  KITTENS_DEVICE void request_dotted(int token) {
    semaphore& full = shared.dotted[w];
    expect_bytes(full, tma::bytes<typename Config::value_tile>);
    tma::load_async(shared.o[w], p.dotted, full, stream.origin, token, stream.head / p.dotted_share,
                    w * kValues);
  }

  // Σ o ∘ dotted over this consumer's columns, of each row.
  KITTENS_DEVICE void store_dots(const rt_fl<16, kValues>& o, int token) {
    wait(shared.dotted[w], dotted_phase);
    dotted_phase ^= 1;
    rt<T, 16, kValues> dotted;
    warpgroup::load(dotted, shared.o[w]);
    rt_fl<16, kValues> products;
    mul(products, o, dotted);
    typename decays_type::of_rows sums;
    row_sum(sums, products);
    const int lane = arch::lane_id();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = token + arch::warp_id() % 4 * 16 + half * 8 + lane / 4;
      float sum[1];
      sums.data[half].get(sum);
      if (lane % 4 != 0 || row >= stream.length) continue;
      arch::store_global(p.dots + stream.place(p, row) * Config::consumers + w, sum[0]);
    }
  }

  // The diagonal of the scores: q · k of each token. It crosses a warp's 16 × 16 scores of its own
  // tokens, of which the quarters 0 and 3 have it.
  KITTENS_DEVICE void store_own_scores(const typename decays_type::scores& s, int first_token) {
    const int lane = arch::lane_id(), warp = arch::warp_id() % 4;
    const int beyond = lane / 4 - lane % 4 * 2;  // of the row, from this lane's first column
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float own = 0;
#pragma unroll
      for (int i = 0; i < kChunk / 16; ++i) {
        const float* const pair = &s.data[0][2 * (4 * i + 3 * half)];
        if (i == warp) own = beyond == 0 ? pair[0] : pair[1];
      }
      const int row = first_token + warp * 16 + half * 8 + lane / 4;
      if ((beyond != 0 && beyond != 1) || row >= stream.length) continue;
      arch::store_global(p.own_scores + stream.place(p, row), own);
    }
  }
};

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
