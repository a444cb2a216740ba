// The gradient of linear attention's decays, from q · dq and k · dk of each token and head:
//
//   dg(t) = ⟨S, dS⟩ − Σ(i < t) (q(i) · dq(i) − w(i) (k(i) · dk(i) / w(i)))
//
// over the tokens i of t's own sequence, whose initial state is S. What other sequences hold is
// selected away, never taken off again: no NaN and no rounding of theirs is in it. Tokens of no
// sequence get 0.
//
// A block has a tile of 256 tokens and 8 heads, so that it reads and writes whole sectors, and a
// thread 8 tokens of one of them. `linear_attention_decay_totals` finds what each tile adds to
// those behind it, and each state; `linear_attention_decay_gradient` adds up those of the tiles
// that its first token's sequence has in front, and its own tokens. Sums are of double precision,
// in an order that lengths alone decide.
#pragma once

#include "kernels/linear_attention/linear_attention_decay_gradient.h"
#include "kernels/linear_attention/linear_attention_stream.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// Dots: numbers of a token and head, which are added up.
template <int Dots>
struct decay_gradient_config {
  static constexpr int dots = Dots;
  static constexpr int threads = 256, warps = threads / kWarp;
  // 80 registers, or 128: with fewer the loads of a run wait.
  static constexpr int min_blocks = Dots == 1 ? 3 : 2;
  static constexpr int heads = 8, runs = threads / heads;  // of a block; of its tokens
  static constexpr int tile = kLinearAttentionDecayTile, tokens = tile / runs;  // … of a run
};

template <class Config>
struct decay_gradient_shared {
  double tiles[Config::warps][Config::heads];  // shares of what tiles in front come to
  double sums[Config::warps][Config::heads];
  int begins[Config::warps][Config::heads];
};

// The sum over some tokens, and whether a sequence begins in them: then that since it last did.
struct decay_sum {
  double sum = 0;
  int begins = 0;

  // Of those in front of these, too.
  KITTENS_DEVICE decay_sum behind(const decay_sum& front) const {
    return {begins ? sum : front.sum + sum, begins | front.begins};
  }
  KITTENS_DEVICE decay_sum of_lane_before(int lanes) const {
    return {arch::shuffle_up(sum, lanes), arch::shuffle_up(begins, lanes)};
  }
};

// The last sequence that starts at a token or before it; or the first one.
struct sequence_of_token {
  int index, start, end;

  KITTENS_DEVICE static sequence_of_token of(const linear_attention_decay_gradient_params& p,
                                             int batch, int token) {
    const int length = static_cast<int>(p.length);
    if (p.cu_seqlens == nullptr) return {batch, 0, length};
    const packed_ends ends{p.cu_seqlens, p.int64_seqlens};
    int index = 0;
    for (int count = static_cast<int>(p.sequences); count > 1;) {
      const int half = count / 2;
      if (ends.at(index + half, 0, length) <= token) index += half;
      count -= half;
    }
    return {index, ends.at(index, 0, length), ends.at(index + 1, 0, length)};
  }

  // The same of a token behind that one.
  KITTENS_DEVICE void advance(const linear_attention_decay_gradient_params& p, int token) {
    if (p.cu_seqlens == nullptr) return;
    const packed_ends ends{p.cu_seqlens, p.int64_seqlens};
    while (token >= end && index + 1 < p.sequences) {
      ++index;
      start = end;
      end = ends.at(index + 1, 0, static_cast<int>(p.length));
    }
  }
  KITTENS_DEVICE bool has(int token) const { return start <= token && token < end; }
};

// What a thread works on: a run of tokens of a head.
template <class Config>
struct decay_run {
  int batch, tile, head, tiles;
  int first;      // token
  bool is_there;  // else another thread has the head too
  float terms[Config::tokens];

  KITTENS_DEVICE explicit decay_run(const linear_attention_decay_gradient_params& p) {
    const int heads = static_cast<int>(p.heads), length = static_cast<int>(p.length);
    const int groups = (heads + Config::heads - 1) / Config::heads;
    tiles = (length + Config::tile - 1) / Config::tile;
    const int of_group = arch::block_x() / groups, thread = arch::thread_id();
    batch = of_group / tiles;
    tile = of_group % tiles;
    head = arch::block_x() % groups * Config::heads + thread % Config::heads;
    first = tile * Config::tile + thread / Config::heads * Config::tokens;
    is_there = head < heads;
    if (!is_there) head = heads - 1;
  }

  // Which of [B, S, H] is a token's.
  KITTENS_DEVICE int64_t place(const linear_attention_decay_gradient_params& p, int token) const {
    return (batch * p.length + token) * p.heads + head;
  }
  // Number i of the run's tokens; or the last of all, in whose place one is read that is not there:
  // without a branch, behind which the next one's loads would wait.
  KITTENS_DEVICE int token(const linear_attention_decay_gradient_params& p, int i) const {
    return first + i < p.length ? first + i : static_cast<int>(p.length) - 1;
  }

  KITTENS_DEVICE void load(const linear_attention_decay_gradient_params& p) {
    float q_dots[Config::tokens][Config::dots], k_dots[Config::tokens][Config::dots];
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      const int64_t from = place(p, token(p, i)) * Config::dots;
#pragma unroll
      for (int d = 0; d < Config::dots; ++d) {
        q_dots[i][d] = arch::load_global(p.q_dots + from + d);
        k_dots[i][d] = arch::load_global(p.k_dots + from + d);
      }
    }
    float weights[Config::tokens];
    load_weights(p, weights);
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      float q = q_dots[i][0], k = k_dots[i][0];
#pragma unroll
      for (int d = 1; d < Config::dots; ++d) {
        q += q_dots[i][d];
        k += k_dots[i][d];
      }
      terms[i] = q - weights[i] * k;
    }
  }

  KITTENS_DEVICE void load_weights(const linear_attention_decay_gradient_params& p,
                                   float (&weights)[Config::tokens]) const {
#pragma unroll
    for (float& weight : weights) weight = 1;
    if (p.weights == nullptr) return;
    const float* const from =
        p.weights + batch * p.weight_strides.batch + head * p.weight_strides.head;
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      weights[i] = arch::load_global(from + token(p, i) * p.weight_strides.token);
    }
  }

  // The run's sum. `sequence`: of its first token. Tokens of no sequence are in it, and what is
  // read for those that are not there; but no token of a sequence is behind these before one
  // begins.
  KITTENS_DEVICE decay_sum add_up(const linear_attention_decay_gradient_params& p,
                                  sequence_of_token sequence) const {
    decay_sum total;
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      sequence.advance(p, first + i);
      if (first + i == sequence.start) total = {0, 1};
      total.sum += terms[i];
    }
    return total;
  }
};

// The sums of the runs of a warp: up to this thread's, and it too. A lane before it by
// Config::heads has the run in front.
template <class Config>
KITTENS_DEVICE decay_sum add_up_runs(decay_sum own) {
#pragma unroll
  for (int lanes = Config::heads; lanes < kWarp; lanes *= 2) {
    const decay_sum front = own.of_lane_before(lanes);
    if (arch::lane_id() >= lanes) own = own.behind(front);
  }
  return own;
}

// Leaves the sum of each warp's runs to the block.
template <class Config>
KITTENS_DEVICE void leave_sums(decay_gradient_shared<Config>& shared, const decay_sum& to_here) {
  const int lane = arch::lane_id(), warp = arch::warp_id();
  if (lane < kWarp - Config::heads) return;  // the warp's last run has all of them in front
  arch::store_shared(&shared.sums[warp][lane % Config::heads], to_here.sum);
  arch::store_shared(&shared.begins[warp][lane % Config::heads], to_here.begins);
}

// The sum of the runs of the first `warps`, behind what is in front of the tile.
template <class Config>
KITTENS_DEVICE decay_sum add_up_warps(const decay_gradient_shared<Config>& shared, decay_sum front,
                                      int warps) {
  const int column = arch::thread_id() % Config::heads;
  for (int warp = 0; warp < warps; ++warp) {
    const decay_sum next{arch::load_shared(&shared.sums[warp][column]),
                         arch::load_shared(&shared.begins[warp][column])};
    front = next.behind(front);
  }
  return front;
}

// ⟨initial, d_initial⟩ of state `which` of all.
template <class Config>
KITTENS_DEVICE void add_up_state(const linear_attention_decay_gradient_params& p, int which,
                                 decay_gradient_shared<Config>& shared) {
  const float* const state = p.initial_state + which * p.state;
  const float* const gradient = p.d_initial_state + which * p.state;
  constexpr int kLoads = 8;  // on their way, of each of the two
  float sum = 0;
  for (int first = arch::thread_id(); first < p.state; first += kLoads * Config::threads) {
    float a[kLoads], b[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int place = first + i * Config::threads < p.state ? first + i * Config::threads : first;
      a[i] = arch::load_global(state + place);
      b[i] = arch::load_global(gradient + place);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i * Config::threads < p.state) sum = arch::fma(a[i], b[i], sum);
    }
  }
  double total = sum;
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) total += arch::shuffle_xor(total, mask);
  if (arch::lane_id() == 0) arch::store_shared(&shared.sums[arch::warp_id()][0], total);
  arch::sync_block();
  if (arch::thread_id() != 0) return;
  for (int warp = 1; warp < Config::warps; ++warp) {
    total += arch::load_shared(&shared.sums[warp][0]);
  }
  arch::store_global(p.state_sums + which, total);
}

// Grid: `tile_blocks`, batch · tiles · (heads / 8, rounded up); and a block of each state.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    linear_attention_decay_totals(const __grid_constant__ linear_attention_decay_gradient_params p,
                                  int tile_blocks) {
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<decay_gradient_shared<Config>*>(arch::dynamic_shared());
  if (arch::block_x() >= tile_blocks) {
    return add_up_state<Config>(p, arch::block_x() - tile_blocks, shared);
  }
  decay_run<Config> run(p);
  run.load(p);
  const decay_sum own = run.add_up(p, sequence_of_token::of(p, run.batch, run.first));
  leave_sums(shared, add_up_runs<Config>(own));
  arch::sync_block();
  if (arch::thread_id() >= Config::heads || !run.is_there) return;
  const decay_sum total = add_up_warps(shared, {}, Config::warps);
  arch::store_global(p.tile_sums + (int64_t{run.batch} * run.tiles + run.tile) * p.heads + run.head,
                     total.sum);
}

// What the tiles add up to that the sequence of the tile's first token has in front of it: of each
// run a share, whose sum over a warp is left to the block.
template <class Config>
KITTENS_DEVICE void leave_tiles(const linear_attention_decay_gradient_params& p,
                                const decay_run<Config>& run,
                                decay_gradient_shared<Config>& shared) {
  const int start = run.tile * Config::tile, of_run = arch::thread_id() / Config::heads;
  const sequence_of_token sequence = sequence_of_token::of(p, run.batch, start);
  const double* const from = p.tile_sums + int64_t{run.batch} * run.tiles * p.heads + run.head;
  double sum = 0;
  for (int tile = sequence.start / Config::tile + of_run; tile < run.tile; tile += Config::runs) {
    sum += arch::load_global(from + tile * p.heads);
  }
#pragma unroll
  for (int lanes = Config::heads; lanes < kWarp; lanes *= 2) sum += arch::shuffle_xor(sum, lanes);
  if (arch::lane_id() < Config::heads) {
    arch::store_shared(&shared.tiles[arch::warp_id()][arch::lane_id()], sum);
  }
}

// Grid: batch · tiles · (heads / 8, rounded up).
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    linear_attention_decay_gradient(
        const __grid_constant__ linear_attention_decay_gradient_params p) {
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<decay_gradient_shared<Config>*>(arch::dynamic_shared());
  decay_run<Config> run(p);
  run.load(p);
  sequence_of_token sequence = sequence_of_token::of(p, run.batch, run.first);
  const decay_sum own = add_up_runs<Config>(run.add_up(p, sequence));
  leave_sums(shared, own);
  leave_tiles(p, run, shared);
  decay_sum before = own.of_lane_before(Config::heads);
  if (arch::lane_id() < Config::heads) before = {};
  arch::sync_block();
  decay_sum front;
#pragma unroll
  for (int warp = 0; warp < Config::warps; ++warp) {
    front.sum += arch::load_shared(&shared.tiles[warp][arch::thread_id() % Config::heads]);
  }
  double sum = before.behind(add_up_warps(shared, front, arch::warp_id())).sum;
  if (!run.is_there) return;

#pragma unroll
  for (int i = 0; i < Config::tokens; ++i) {
    const int token = run.first + i;
    if (token >= p.length) return;
    sequence.advance(p, token);
    if (token == sequence.start) sum = 0;
    double state = 0;
    if (p.initial_state != nullptr) {
      state = arch::load_global(p.state_sums + sequence.index * p.heads + run.head);
    }
    arch::store_global(p.d_log_decay + run.place(p, token),
                       sequence.has(token) ? static_cast<float>(state - sum) : 0.0f);
    sum += run.terms[i];
  }
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
