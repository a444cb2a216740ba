// linear attention: a consumer. One warpgroup has 64 columns of a head's v and o, and their state
// in its registers. (linear_attention_chunkwise.cuh)
#pragma once

#include "kernels/linear_attention/linear_attention_decayed_values.cuh"
#include "kernels/linear_attention/linear_attention_scores.cuh"
#include "kernels/linear_attention/linear_attention_state.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
class linear_attention_consumer {
 public:
  // w: which of the consumers this warpgroup is.
  KITTENS_DEVICE linear_attention_consumer(const linear_attention_arguments<Config>& p,
                                           linear_attention_chunkwise_shared<Config>& shared, int w)
      : p(p),
        shared(shared),
        w(w),
        head(w / Config::columns),
        column(w % Config::columns),
        stream(shared.stream[head]) {}

  KITTENS_DEVICE void consume() {
    if (stream.is_empty()) return;
    for (int step = 0; step < Config::stages - 1; ++step) request(step, {step, 0});
    const int warp = arch::warp_id() % 4;
    if (warp >= kFirstOfDecays) {
      request_gates(warp - kFirstOfDecays);
      leave_decays_of(warp - kFirstOfDecays);
    }
    load_state<Config>(p, stream, column, state);
    warpgroup::sync(kBarrier + w);
    scores s;
    if constexpr (Config::outputs) {
      decay_and_publish(0);
      arch::fence_async_proxy();
      if (Config::scores_ahead && stream.count > 0) {
        issue_scores(s, at);
        warpgroup::mma_async_wait<0>(s);
      }
      warpgroup::sync(kBarrier + w);
    }
    float decay = 0;  // log₂
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step) {
      at = place_of(step);
      const int ahead = step + kDecaysAhead;
      const bool leaves_decays = warp == kFirstOfDecays + ahead % kDecaysAhead;
      request(step + Config::stages - 1, before(at));
      if (leaves_decays) request_gates(ahead);
      if constexpr (Config::outputs) {
        attend(s, step);
      } else {
        shared.chunks.wait_full(at);
        decay += add_to_state(step);
      }
      if (leaves_decays) leave_decays_of(ahead);
    }
    store_state<Config>(p, stream, column, state, decay);
    if (Config::outputs && signals()) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using scores = rt_fl<16, kChunk>;
  using of_rows = scores::col_vec;
  using decays_type = decays_of_tokens<kChunk>;
  using values_of_rows = decayed_values<T>;
  static constexpr int kBarrier = 1;  // one a consumer
  // Chunks whose decays are there before: as many as have memory. The next one's decay the state as
  // soon as it is there.
  static constexpr int kDecaysAhead = 2;
  // What only some do, different warps do, for each chunk waits for the slowest: warp 0 asks for
  // chunks, warp 1 stores o and gives chunks back, warps 2 and 3 leave decays in turn.
  static constexpr int kFirstOfDecays = 2;
  const linear_attention_arguments<Config>& p;
  linear_attention_chunkwise_shared<Config>& shared;
  const int w, head, column;  // the head of the block's, and which 64 columns of its v and o
  const chunk_stream& stream;
  cursor<Config::stages> at;
  uint32_t dotted_phase = 0;
  bool by_factors;                     // how the chunk's scores decay
  rt_fl<16, Config::key_width> state;  // [values, keys]

  // Where the chunk of a step is. Two stages follow from the step; their cursor, kept, would be two
  // registers.
  KITTENS_DEVICE cursor<Config::stages> place_of(int step) const {
    if constexpr (Config::stages == 2) {
      return {step % 2, uint32_t(step / 2 % 2)};
    } else {
      cursor<Config::stages> next = at;
      if (step > 0) next.advance();
      return next;
    }
  }
  // The stage before that: of the chunk that comes as many later as there are others.
  KITTENS_DEVICE static cursor<Config::stages> before(const cursor<Config::stages>& at) {
    const bool first = at.stage == 0;
    return {first ? Config::stages - 1 : at.stage - 1, first ? at.phase : at.phase ^ 1};
  }
  KITTENS_DEVICE int token(int step) const { return stream.template token<Config>(step); }
  KITTENS_DEVICE bool skips() const { return Config::weighted && p.skip != nullptr; }
  KITTENS_DEVICE bool weighs_rows() const {
    return Config::weighted && Config::gradients && p.o_weights != nullptr;
  }
  KITTENS_DEVICE bool leaves_dots() const { return Config::gradients && p.dots != nullptr; }
  KITTENS_DEVICE bool leaves_own_scores() const {
    return Config::weighted && Config::gradients && p.own_scores != nullptr && column == 0;
  }
  KITTENS_DEVICE bool signals() const { return arch::thread_id() % 128 == kWarp; }

  // Of the chunk of a step; or, behind the last one, of none.
  KITTENS_DEVICE decays_type& decays_of(int step) const {
    return shared.decays[w].of_chunk[step % kDecaysAhead];
  }
  // By a warp for every other chunk, whose gates come while another is computed.
  KITTENS_DEVICE void request_gates(int step) {
    request_gates_of<Config>(shared.decays[w].gates[step % kDecaysAhead], shared.places[head], p,
                             gate_tokens::of_step<Config>(stream, step));
    load_async_commit();
  }
  KITTENS_DEVICE void leave_decays_of(int step) {
    load_async_wait<0>();
    leave_decays<Config>(decays_of(step), shared.decays[w].gates[step % kDecaysAhead],
                         shared.places[head], p, gate_tokens::of_step<Config>(stream, step));
  }
  // This warp's rows.
  KITTENS_DEVICE of_rows rows_of(const decays_type::of_tokens& all) const {
    of_rows rows;
    load(rows, decays_type::sixteen(all, arch::warp_id() % 4));
    return rows;
  }

  // Has the chunk of a step brought, into a stage that each consumer gives back by itself. One
  // thread does it for all of them.
  KITTENS_DEVICE void request(int step, const cursor<Config::stages>& requested) {
    if (arch::thread_id() != 0 || step >= stream.count) return;
    constexpr int kBytes = (Config::outputs ? 2 : 1) * tma::bytes<typename Config::key_tile> +
                           Config::consumers * tma::bytes<typename Config::value_tile>;
    const int token = this->token(step), stage = requested.stage;
    const sequence_origin& origin = stream.origin;
    semaphore& full = shared.chunks.full[stage];
    shared.chunks.wait_empty(requested);
    shared.chunks.expect(requested, kBytes);
    tma::load_async(shared.k[stage], p.k, full, origin, token, shared.heads.k);
    if constexpr (Config::outputs) {
      tma::load_async(shared.q[stage], p.q, full, origin, token, shared.heads.q);
    }
    for (int i = 0; i < Config::consumers; ++i) {
      tma::load_async(shared.v[stage][i], p.v, full, origin, token,
                      shared.heads.v + i / Config::columns, i % Config::columns * kValues);
    }
  }

  // s = q kᵀ of a chunk, once it is there. Leaves the product under way.
  KITTENS_DEVICE void issue_scores(scores& s, const cursor<Config::stages>& chunk) {
    shared.chunks.wait_full(chunk);
    warpgroup::mma_fence(s);
    warpgroup::mm_ABt(s, shared.q[chunk.stage], shared.k[chunk.stage]);
    warpgroup::mma_commit_group();
  }

  // One chunk: its part of o, and the state behind it, as the next chunk takes it. Scores need no
  // state: by Config::scores_ahead they are there, and are the next chunk's at the end.
  KITTENS_DEVICE void attend(scores& s, int step) {
    const decays_type& decays = decays_of(step);
    rt_fl<16, kValues> o;
    if constexpr (!Config::scores_ahead) issue_scores(s, at);
    warpgroup::mma_fence();
    warpgroup::mm_ABt(o, shared.q[at.stage], shared.state[w]);
    warpgroup::mma_commit_group();
    values_of_rows v;
    if constexpr (!Config::late_values) load_decayed_values(v, shared.v[at.stage][w], decays);
    warpgroup::mma_async_wait<1>(s);
    if (leaves_own_scores()) store_own_scores(s, token(step));
    rt<T, 16, kChunk> weights = weights_of<Config>(s, decays, by_factors);
    if constexpr (Config::late_values) load_decayed_values(v, shared.v[at.stage][w], decays);
    warpgroup::mma_async_wait<0>(o);
    if (signals()) tma::store_async_read_wait<0>();
    // All have read the state, and what was stored last has left shared memory.
    warpgroup::sync(kBarrier + w);
    if (signals() && leaves_dots()) request_dotted(token(step));
    issue_state_product(v);
    if (!by_factors) mul_row(o, o, rows_of(decays.before));
    warpgroup::mma_fence(weights, o);
    warpgroup::mma_AB(o, weights, shared.v[at.stage][w]);
    warpgroup::mma_commit_group();
    warpgroup::mma_async_wait<1>(state);
    decay_and_publish(step + 1);
    if constexpr (Config::scores_ahead) {
      cursor<Config::stages> next = at;
      if (step + 1 < stream.count) next.advance();  // else once more this one's, for nobody
      issue_scores(s, next);
    }
    warpgroup::mma_async_wait<Config::scores_ahead ? 1 : 0>(o);
    mul_row(o, o, rows_of(decays.after));
    if (leaves_dots()) store_dots(o, token(step));
    if (weighs_rows()) mul_row(o, o, rows_of(decays.weights));
    if (skips()) {
      rt<T, 16, kValues> values;  // read until the next barrier
      warpgroup::load(values, shared.v[at.stage][w]);
      add_skipping(o, shared.skip[head], values);
    }
    warpgroup::store(shared.o[w], o);
    warpgroup::sync(kBarrier + w);
    if (signals()) {
      shared.chunks.release_after_mma(at);  // store's fence is behind all reads of the values, too
      tma::store_async(p.o, shared.o[w], stream.origin, token(step), stream.head, column * kValues);
      tma::store_commit_group();
    }
    if constexpr (Config::scores_ahead) warpgroup::mma_async_wait<0>(s);
  }

  // state += vᵀ k, with v decayed. Leaves the product under way.
  KITTENS_DEVICE void issue_state_product(const values_of_rows& v) {
    warpgroup::mma_fence(state);
    warpgroup::mma_AB(state, v, shared.k[at.stage]);
    warpgroup::mma_commit_group();
  }

  // The state behind a chunk, where no outputs are. Returns log₂ of the chunk's decay.
  KITTENS_DEVICE float add_to_state(int step) {
    const float total = decays_of(step).total;
    values_of_rows v;
    load_decayed_values(v, shared.v[at.stage][w], decays_of(step));
    arch::fence_async_proxy();      // before the copy that will overwrite the values
    warpgroup::sync(kBarrier + w);  // all have read the values and the decays
    mul(state, state, arch::exp2_approx(total));
    issue_state_product(v);
    warpgroup::mma_async_wait<0>(state);
    if (signals()) shared.chunks.release_after_mma(at);
    return total;
  }

  // The state for the product of a step's chunk, there after a fence and a barrier, and as the
  // chunk adds to it. By factors, all rows of o take the whole chunk's decay of it.
  KITTENS_DEVICE void decay_and_publish(int step) {
    const decays_type& next = decays_of(step);
    // In reverse the state is yet that in front of the chunk before.
    if (Config::gradients && (Config::reverse ? step > 0 : step < stream.count)) {
      pass_anchor<Config>(p, shared.anchors[head], token(Config::reverse ? step - 1 : step), column,
                          state);
    }
    const float total = next.total, decay = arch::exp2_approx(total);
    by_factors = takes_factors<T>(total);
    if (by_factors) {
      mul(state, state, decay);
      warpgroup::store_unfenced(shared.state[w], state);
    } else {
      warpgroup::store_unfenced(shared.state[w], state);
      mul(state, state, decay);
    }
  }

  // What o's rows are multiplied by comes to where o will go out from.
  KITTENS_DEVICE void request_dotted(int token) {
    semaphore& full = shared.dotted[w];
    expect_bytes(full, tma::bytes<typename Config::value_tile>);
    tma::load_async(shared.o[w], p.dotted, full, stream.origin, token, shared.heads.dotted,
                    column * kValues);
  }

  // Σ o ∘ dotted over this consumer's columns, of each row.
  KITTENS_DEVICE void store_dots(const rt_fl<16, kValues>& o, int token) {
    wait(shared.dotted[w], dotted_phase);
    dotted_phase ^= 1;
    rt<T, 16, kValues> dotted;
    warpgroup::load(dotted, shared.o[w]);
    rt_fl<16, kValues> products;
    mul(products, o, dotted);
    of_rows sums;
    row_sum(sums, products);
    const int lane = arch::lane_id();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = token + arch::warp_id() % 4 * 16 + half * 8 + lane / 4;
      float sum[1];
      sums.data[half].get(sum);
      if (lane % 4 != 0 || row >= stream.length) continue;
      arch::store_global(p.dots + stream.place(p, row) * Config::columns + column, sum[0]);
    }
  }

  // The diagonal of the scores: q · k of each token. It crosses a warp's 16 × 16 scores of its own
  // tokens, of which the quarters 0 and 3 have it.
  KITTENS_DEVICE void store_own_scores(const scores& s, int first_token) {
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
