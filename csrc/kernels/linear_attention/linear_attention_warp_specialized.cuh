// linear attention, warp-specialized: seven warpgroups for two heads that share q and k.
//
//   decays    a warp of each head makes what its tokens decay by, chunks ahead
//   state     a warpgroup of each head stores S before a chunk in bf16, and then computes
//             S = decayed S + decayed vᵀ k
//   weights   two warpgroups, in turn, compute s = q kᵀ, and of it the weights of either head
//   output    a warpgroup of each head computes o = decayed q S + weights v, and stores it
//   loads     one more warp has chunks brought by TMA
//
// The next chunk needs nothing of a chunk but its state. So a head has up to four chunks under way,
// where one warpgroup (linear_attention_chunkwise.cuh, which says what is computed) waits for one
// product after the other. That pays where heads are too few to fill the multiprocessors with
// blocks; shared memory is what it is bound by then (benchmarks/linear_attention.md).
#pragma once

#include "kernels/linear_attention/linear_attention_decayed_values.cuh"
#include "kernels/linear_attention/linear_attention_scores.cuh"
#include "kernels/linear_attention/linear_attention_state.cuh"
#include "kittens/pipeline/programmatic_launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
struct linear_attention_warp_specialized_shared {
  // Chunks whose operands o waits for, whose decays are there, and whose gates are on the way.
  static constexpr int kOperands = 2, kDecays = 4, kGates = 4;

  typename Config::key_tile k[Config::stages], q[Config::stages];
  typename Config::value_tile v[Config::stages][Config::heads];
  typename Config::output_tile o[Config::heads][4];  // of each warp
  typename Config::state_tile state[Config::heads][kOperands];
  typename Config::weights_tile weights[Config::heads][kOperands];
  gates_of_chunk<Config> gates[Config::heads][kGates];
  decays_of_tokens<kChunk> decays_of_chunk[Config::heads][kDecays];
  ring<Config::stages> chunks;
  ring<kOperands> states[Config::heads], weighted[Config::heads];
  ring<kDecays> decays[Config::heads];
  chunk_stream stream[Config::heads];
  places_of_gates places[Config::heads];
  float skip[Config::heads];
  heads_read heads;

  // One thread, before a barrier of the block. Warps arrive one by one.
  KITTENS_DEVICE void init_rings() {
    constexpr int kWarps = 4;  // of a warpgroup
    chunks.init(kWarps * (2 * Config::heads + 1));
    for (auto& ring : states) ring.init(kWarps, kWarps);
    for (auto& ring : weighted) ring.init(kWarps, kWarps);
    for (auto& ring : decays) ring.init(3 * kWarps);
  }
};

// What the warpgroups of one head do.
template <class Config>
class warp_specialized_head {
 public:
  KITTENS_DEVICE warp_specialized_head(const linear_attention_arguments<Config>& p,
                                       linear_attention_warp_specialized_shared<Config>& shared,
                                       int head)
      : p(p), shared(shared), head(head), stream(shared.stream[head]) {}

  // Of the block's first head: chunks for all of them.
  KITTENS_DEVICE void load_chunks() {
    if (arch::lane_id() != 0) return;
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step) load_chunk(step);
  }

  KITTENS_DEVICE void make_decays() {
    constexpr int kAhead = kGates - 1;
    for (int step = 0; step < kAhead; ++step) request_gates(step);
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step) {
      const cursor<kDecays> at = place_of<kDecays>(step);
      load_async_wait<kAhead - 1>();
      shared.decays[head].wait_empty(at);
      leave_decays<Config>(decays_of(step), gates_of(step), shared.places[head], p,
                           gate_tokens::of_step<Config>(stream, step));
      arch::sync_warp();
      if (arch::lane_id() == 0) arrive(shared.decays[head].full[at.stage]);
      request_gates(step + kAhead);
    }
  }

  KITTENS_DEVICE void pass_state() {
    consumer_state<Config> state;
    arch::wait_prerequisites();
    load_state<Config>(p, stream, 0, state);
    if (stream.count > 0) decay_and_publish(state, 0);
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step) {
      const cursor<Config::stages> at = place_of<Config::stages>(step);
      shared.chunks.wait_full(at);
      decayed_values<T> v;
      load_decayed_values(v, shared.v[at.stage][head], decays_of(step));
      warpgroup::mma_fence(state);
      warpgroup::mma_AB(state, v, shared.k[at.stage]);
      warpgroup::mma_commit_group();
      arch::fence_async_proxy();  // behind the loads, before the copy that overwrites the values
      warpgroup::mma_async_wait<0>(state);
      arch::sync_warp();
      if (arch::lane_id() == 0) {
        shared.chunks.release_after_mma(at);
        arrive(shared.decays[head].empty[step % kDecays]);
      }
      if (step + 1 < stream.count) decay_and_publish(state, step + 1);
    }
    store_state<Config>(p, stream, 0, state, 0);
  }

  // Of the block's first head: for all of them.
  KITTENS_DEVICE void weigh_scores(int turn) {
#pragma unroll 1
    for (int step = turn; step < stream.count; step += Config::turns) {
      const cursor<Config::stages> at = place_of<Config::stages>(step);
      const cursor<kOperands> to = place_of<kOperands>(step);
      const cursor<kDecays> of_decays = place_of<kDecays>(step);
      rt_fl<16, kChunk> s;
      shared.chunks.wait_full(at);
      warpgroup::mma_fence(s);
      warpgroup::mm_ABt(s, shared.q[at.stage], shared.k[at.stage]);
      warpgroup::mma_commit_group();
      warpgroup::mma_async_wait<0>(s);
      if (arch::lane_id() == 0) shared.chunks.release_after_mma(at);
#pragma unroll
      for (int i = 0; i < Config::heads; ++i) {
        const decays_type& decays = shared.decays_of_chunk[i][of_decays.stage];
        shared.decays[i].wait_full(of_decays);
        const rt<T, 16, kChunk> weights =
            weights_of<Config>(s, decays, takes_factors<T>(decays.total));
        shared.weighted[i].wait_empty(to);
        warpgroup::store_unfenced(shared.weights[i][to.stage], weights);
      }
      arch::fence_async_proxy();
      arch::sync_warp();
      if (arch::lane_id() != 0) continue;
#pragma unroll
      for (int i = 0; i < Config::heads; ++i) {
        arrive(shared.weighted[i].full[to.stage]);
        arrive(shared.decays[i].empty[of_decays.stage]);
      }
    }
  }

  KITTENS_DEVICE void compute_outputs() {
    const int warp = arch::warp_id() % 4;
    typename Config::output_tile& out = shared.o[head][warp];
    arch::wait_prerequisites();
#pragma unroll 1
    for (int step = 0; step < stream.count; ++step) {
      const cursor<Config::stages> at = place_of<Config::stages>(step);
      const cursor<kOperands> from = place_of<kOperands>(step);
      const auto &q = shared.q[at.stage], &state = shared.state[head][from.stage];
      const auto &weights = shared.weights[head][from.stage], &v = shared.v[at.stage][head];
      const decays_type& decays = decays_of(step);
      rt_fl<16, kValues> o;
      shared.chunks.wait_full(at);
      shared.states[head].wait_full(from);  // and decays: the state has taken them
      shared.weighted[head].wait_full(from);
      if (takes_factors<T>(decays.total)) {
        warpgroup::mma_fence(o);
        warpgroup::mm_ABt(o, q, state);
        warpgroup::mma_AB(o, weights, v);
        warpgroup::mma_commit_group();
        warpgroup::mma_async_wait<0>(o);
      } else {
        warpgroup::mma_fence(o);
        warpgroup::mm_ABt(o, q, state);
        warpgroup::mma_commit_group();
        warpgroup::mma_async_wait<0>(o);
        mul_row(o, o, rows_of(decays.before));
        warpgroup::mma_fence(o);
        warpgroup::mma_AB(o, weights, v);
        warpgroup::mma_commit_group();
        warpgroup::mma_async_wait<0>(o);
      }
      mul_row(o, o, rows_of(decays.after));
      if (p.skip != nullptr) {
        rt<T, 16, kValues> values;
        warpgroup::load(values, v);
        add_skipping(o, shared.skip[head], values);
      }
      if (arch::lane_id() == 0) tma::store_async_read_wait<0>();  // the tile is free
      arch::sync_warp();
      store(out, o);  // its fence is behind all reads of the values, too
      arch::sync_warp();
      if (arch::lane_id() == 0) {
        shared.chunks.release_after_mma(at);
        shared.states[head].release_after_mma(from);
        shared.weighted[head].release_after_mma(from);
        arrive(shared.decays[head].empty[step % kDecays]);
        tma::store_async(p.o, out, stream.origin, token(step) + 16 * warp, stream.head);
        tma::store_commit_group();
      }
    }
    if (arch::lane_id() == 0) tma::store_async_read_wait<0>();
  }

 private:
  using T = typename Config::type;
  using decays_type = decays_of_tokens<kChunk>;
  using of_rows = rt_fl<16, kChunk>::col_vec;
  static constexpr int kOperands = linear_attention_warp_specialized_shared<Config>::kOperands;
  static constexpr int kDecays = linear_attention_warp_specialized_shared<Config>::kDecays;
  static constexpr int kGates = linear_attention_warp_specialized_shared<Config>::kGates;
  const linear_attention_arguments<Config>& p;
  linear_attention_warp_specialized_shared<Config>& shared;
  const int head;  // of the block's
  const chunk_stream& stream;

  template <int Stages>
  KITTENS_DEVICE static cursor<Stages> place_of(int step) {
    return {step % Stages, uint32_t(step / Stages % 2)};
  }
  KITTENS_DEVICE int token(int step) const { return stream.template token<Config>(step); }
  KITTENS_DEVICE decays_type& decays_of(int step) const {
    return shared.decays_of_chunk[head][step % kDecays];
  }
  KITTENS_DEVICE of_rows rows_of(const decays_type::of_tokens& all) const {
    of_rows rows;
    load(rows, decays_type::sixteen(all, arch::warp_id() % 4));
    return rows;
  }

  KITTENS_DEVICE void load_chunk(int step) {
    constexpr int kBytes = 2 * tma::bytes<typename Config::key_tile> +
                           Config::heads * tma::bytes<typename Config::value_tile>;
    const cursor<Config::stages> at = place_of<Config::stages>(step);
    const int token = this->token(step), stage = at.stage;
    semaphore& full = shared.chunks.full[stage];
    shared.chunks.wait_empty(at);
    shared.chunks.expect(at, kBytes);
    tma::load_async(shared.k[stage], p.k, full, stream.origin, token, shared.heads.k);
    tma::load_async(shared.q[stage], p.q, full, stream.origin, token, shared.heads.q);
    for (int i = 0; i < Config::heads; ++i) {
      tma::load_async(shared.v[stage][i], p.v, full, stream.origin, token, shared.heads.v + i);
    }
  }
  KITTENS_DEVICE gates_of_chunk<Config>& gates_of(int step) const {
    return shared.gates[head][step % kGates];
  }
  KITTENS_DEVICE void request_gates(int step) {
    if (step < stream.count) {
      request_gates_of<Config>(gates_of(step), shared.places[head], p,
                               gate_tokens::of_step<Config>(stream, step));
    }
    load_async_commit();  // of nothing, too: waits count groups
  }

  // The state in front of a step's chunk, as the product takes it, and then as the chunk adds to
  // it. By factors, all rows of o take the whole chunk's decay of it.
  KITTENS_DEVICE void decay_and_publish(consumer_state<Config>& state, int step) {
    const cursor<kOperands> at = place_of<kOperands>(step);
    shared.decays[head].wait_full(place_of<kDecays>(step));
    const float total = decays_of(step).total, decay = arch::exp2_approx(total);
    const bool by_factors = takes_factors<T>(total);
    if (by_factors) mul(state, state, decay);
    shared.states[head].wait_empty(at);
    warpgroup::store(shared.state[head][at.stage], state);
    arch::sync_warp();
    if (arch::lane_id() == 0) arrive(shared.states[head].full[at.stage]);
    if (!by_factors) mul(state, state, decay);
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_multiprocessor)
    linear_attention_warp_specialized(
        const __grid_constant__ linear_attention_arguments<Config> p) {
  // What is read is there where the kernel in front writes the parts' states alone: those are
  // waited for as late as they are read.
  if (p.is_behind_parts) {
    arch::launch_dependents();
  } else {
    begin_dependent_grid();
  }
  auto& s =
      *reinterpret_cast<linear_attention_warp_specialized_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) s.init_rings();
  find_streams(p, s);
  arch::sync_block();
  if (s.stream[0].is_empty()) return arch::wait_prerequisites();
  constexpr int kHeads = Config::heads;
  const int group = warpgroupid(), warp = arch::warp_id() % 4;
  if (group < kHeads) {
    arch::raise_registers<Config::output_registers>();
    warp_specialized_head<Config>(p, s, group).compute_outputs();
  } else if (group < 2 * kHeads) {
    arch::raise_registers<Config::state_registers>();
    warp_specialized_head<Config>(p, s, group - kHeads).pass_state();
  } else if (group < 2 * kHeads + Config::turns) {
    warp_specialized_head<Config>(p, s, 0).weigh_scores(group - 2 * kHeads);
  } else {
    arch::lower_registers<Config::decays_registers>();
    if (warp < kHeads) warp_specialized_head<Config>(p, s, warp).make_decays();
    if (warp == kHeads) warp_specialized_head<Config>(p, s, 0).load_chunks();
  }
  arch::wait_prerequisites();  // who has read nothing of parts, too
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
