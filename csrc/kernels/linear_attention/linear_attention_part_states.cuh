// linear attention: the states that parts of sequences add, and their decays, of heads whose gates
// the kernel makes. (linear_attention_warp_specialized.cuh)
//
// From the last chunk of a part to the first, so that what a token decays to the part's end is
// known as soon as it is there:
//
//   S = Σ(j) e^(L(E) − L(j)) w(j) k(j) v(j)ᵀ,   E the part's last token
//
// and no product waits for the one before. A warpgroup multiplies, one warp makes decays, of two
// chunks at a time, and another one has chunks brought.
#pragma once

#include "kernels/linear_attention/linear_attention_decayed_values.cuh"
#include "kernels/linear_attention/linear_attention_state.cuh"
#include "kittens/pipeline/programmatic_launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
struct linear_attention_part_states_shared {
  static constexpr int kGates = 4;  // pairs of chunks whose gates are on the way

  typename Config::key_tile k[Config::stages];
  typename Config::value_tile v[Config::stages];
  factors_of_pair to_end[Config::stages][kChunk / 2];  // of the part
  words_of_tokens<2 * kChunk> gates[kGates];
  ring<Config::stages> chunks;  // and their factors
  chunk_stream stream;
  places_of_gates places;
  heads_read heads;
};

template <class Config>
class part_of_sequence {
 public:
  KITTENS_DEVICE part_of_sequence(const linear_attention_arguments<Config>& p,
                                  linear_attention_part_states_shared<Config>& shared)
      : p(p), shared(shared), stream(shared.stream) {}

  // One lane. Chunk number 0 is the part's last one.
  KITTENS_DEVICE void load_chunks() {
#pragma unroll 1
    for (int i = 0; i < stream.count; ++i) {
      const cursor<Config::stages> at = place_of(i);
      const int token = stream.template token<Config>(stream.count - 1 - i);
      semaphore& full = shared.chunks.full[at.stage];
      shared.chunks.wait_empty(at);
      shared.chunks.expect(
          at, tma::bytes<typename Config::key_tile> + tma::bytes<typename Config::value_tile>);
      tma::load_async(shared.k[at.stage], p.k, full, stream.origin, token, shared.heads.k);
      tma::load_async(shared.v[at.stage], p.v, full, stream.origin, token, shared.heads.v);
    }
  }

  // One warp. A lane has four tokens of the two chunks, the first 16 lanes those of the earlier.
  KITTENS_DEVICE void make_decays() {
    constexpr int kAhead = linear_attention_part_states_shared<Config>::kGates - 1;
    for (int i = 0; i < kAhead; ++i) request_gates(2 * i);
    float log_decay = 0;  // log₂, of all chunks so far
#pragma unroll 1
    for (int i = 0; i < stream.count; i += 2) {
      load_async_wait<kAhead - 1>();
      const auto own =
          gates_of_lane<4>::of<pair_of_chunks>(gates_of(i), shared.places, p, tokens_of(i));
      request_gates(i + 2 * kAhead);  // in place of those that all have read before
      float sum = own.sum(), factors[4];
      const float total = arch::shuffle(sum, kWarp - 1);
#pragma unroll
      for (int j = 3; j >= 0; --j) {
        factors[j] = arch::exp2_approx(log_decay + (total - sum)) * own.k_weight.data[j];
        sum -= own.decay.data[j];
      }
      log_decay += total;
      leave_factors(i, factors);
    }
    if (arch::lane_id() == 0) arch::store_global(part_decay(p, stream, stream.index), log_decay);
  }

  // One warpgroup. Two chunks at a time, one loaded while the other is multiplied.
  KITTENS_DEVICE void add_up() {
    consumer_state<Config> state;
    zero(state);
    decayed_values<T> v, next;
    int i = 0;
#pragma unroll 1
    for (; i + 1 < stream.count; i += 2) {
      load(v, i);
      issue_product(state, v, i);
      load(next, i + 1);
      issue_product(state, next, i + 1);
      arch::fence_async_proxy();  // behind the loads, before the copies that overwrite the values
      warpgroup::mma_async_wait<1>();
      release(i);
      warpgroup::mma_async_wait<0>(state);
      release(i + 1);
    }
    if (i < stream.count) {
      load(v, i);
      issue_product(state, v, i);
      warpgroup::mma_async_wait<0>(state);
    }
    store_part_state<Config>(p, stream, 0, state);
  }

 private:
  using T = typename Config::type;
  struct pair_of_chunks : Config {
    static constexpr int chunk = 2 * kChunk;
  };
  const linear_attention_arguments<Config>& p;
  linear_attention_part_states_shared<Config>& shared;
  const chunk_stream& stream;

  KITTENS_DEVICE static cursor<Config::stages> place_of(int i) {
    return {i % Config::stages, uint32_t(i / Config::stages % 2)};
  }
  // Of chunks i + 1 and i, of which the former may be in front of the part.
  KITTENS_DEVICE gate_tokens tokens_of(int i) const {
    const int first = (stream.first + stream.count - 2 - i) * kChunk;
    return {first, stream.first * kChunk, stream.length};
  }
  KITTENS_DEVICE words_of_tokens<2 * kChunk>& gates_of(int i) const {
    return shared.gates[i / 2 % linear_attention_part_states_shared<Config>::kGates];
  }
  KITTENS_DEVICE void request_gates(int i) {
    if (i < stream.count) {
      request_gates_of<pair_of_chunks>(gates_of(i), shared.places, p, tokens_of(i));
    }
    load_async_commit();  // of nothing, too: waits count groups
  }
  // Of chunks i and i + 1, once their stages are empty.
  KITTENS_DEVICE void leave_factors(int i, const float (&factors)[4]) {
    const int lane = arch::lane_id(), chunk = lane < 16 ? i + 1 : i;
    const bool exists = chunk < stream.count;
    const cursor<Config::stages> at = place_of(chunk);
    if (exists) {
      shared.chunks.wait_empty(at);
      factors_of_pair* const to = &shared.to_end[at.stage][lane % 16 * 2];
      arch::store_shared(to, factors_of_pair::of(factors[0], factors[1]));
      arch::store_shared(to + 1, factors_of_pair::of(factors[2], factors[3]));
    }
    arch::sync_warp();
    if (exists && lane % 16 == 0) arrive(shared.chunks.full[at.stage]);
  }

  KITTENS_DEVICE void load(decayed_values<T>& v, int i) {
    const cursor<Config::stages> at = place_of(i);
    shared.chunks.wait_full(at);
    load_values(v, shared.v[at.stage], arch::warp_id() % 4 * 16);
    decay_values(v, shared.to_end[at.stage]);
  }
  KITTENS_DEVICE void issue_product(consumer_state<Config>& state, const decayed_values<T>& v,
                                    int i) {
    warpgroup::mma_fence(state);
    warpgroup::mma_AB(state, v, shared.k[place_of(i).stage]);
    warpgroup::mma_commit_group();
  }
  KITTENS_DEVICE void release(int i) {
    arch::sync_warp();
    if (arch::lane_id() == 0) shared.chunks.release_after_mma(place_of(i));
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::blocks_per_multiprocessor)
    linear_attention_part_states(const __grid_constant__ linear_attention_arguments<Config> p) {
  begin_dependent_grid();
  auto& s = *reinterpret_cast<linear_attention_part_states_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    s.chunks.init(/*consumers=*/4, /*producers=*/2);  // warps; copies and factors
    s.stream = chunk_stream::of<Config>(p, arch::block_x());
    s.heads = heads_read::of(p, s.stream.head);
    s.places = places_of_gates::of<Config>(p, s.stream);
  }
  arch::sync_block();
  part_of_sequence<Config> part(p, s);
  const int warp = arch::warp_id();
  if (warp < 4) {
    part.add_up();
  } else if (warp == 4) {
    part.make_decays();
  } else if (arch::lane_id() == 0) {
    part.load_chunks();
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
