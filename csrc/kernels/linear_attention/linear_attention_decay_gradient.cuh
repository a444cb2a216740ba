// The gradient of linear attention's decays, from q · dq and k · dk of each token and head:
//
//   dg(t) − dg(t + 1) = r(t),   r(t) = q(t) · dq(t) − w(t) (k(t) · dk(t) / w(t))
//
// Sums of r over a sequence would add up the roundings of all of its tokens. So dg is found anew at
// each anchor (linear_attention_anchors.cuh), and r is added up from one anchor, a, to the next, b:
//
//   dg(t) = dg(a) − Σ(a ≤ i < t) r(i) + (t − a) / (b − a) · e
//
//   e = dg(b) − dg(a) + Σ(a ≤ i < b) r(i)
//
// e is what those sums are off by at b, and each token has its share of it: of errors that do not
// know of one another the rms becomes 1 / √3 of what it was. Behind a sequence's last token dg is
// 0; or, with a gradient of the final state, not known, and e is 0.
//
// A block has a slot, the tokens from an anchor to the next, and 8 heads, so that it reads and
// writes whole sectors; and a thread 4 or 8 tokens of one of them. Tokens of no packed sequence
// have slots as if they were of two more, in front and behind: they get 0. What other sequences
// hold is selected away, never taken off again: no NaN and no rounding of theirs is in a sum. Sums
// are in an order that lengths alone decide.
#pragma once

#include "kernels/linear_attention/linear_attention_anchors.cuh"
#include "kernels/linear_attention/linear_attention_decay_gradient.h"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// Dots: numbers of a token and head, which are added up. Anchor: tokens from one to the next.
template <int Dots, int Anchor>
struct decay_gradient_config {
  static constexpr int dots = Dots, anchor = Anchor;
  static constexpr int threads = 256, warps = threads / kWarp;
  static constexpr int heads = 8, runs = threads / heads;  // of a block; of its tokens
  static constexpr int tokens = anchor / runs;             // … of a run
};

template <class Config>
struct decay_gradient_shared {
  float sums[Config::warps][Config::heads];
};

// The tokens of a slot.
struct anchor_slot {
  int batch, first, count;  // `count` is 0 or less: nobody's
  bool of_sequence;         // else their gradient is 0
  bool begins, ends;        // with the sequence's first token; with its last one

  template <int Anchor>
  KITTENS_DEVICE static anchor_slot of(const linear_attention_decay_gradient_params& p, int slot) {
    const int length = static_cast<int>(p.length);
    const auto make = [&](int batch, int start, int end, int number, bool of_sequence) {
      const int first = start + number * Anchor, rest = end - first;
      return anchor_slot{batch,       first,       rest < Anchor ? rest : Anchor,
                         of_sequence, number == 0, rest <= Anchor};
    };
    if (p.cu_seqlens == nullptr) {
      const int slots = (length + Anchor - 1) / Anchor;
      return make(slot / slots, 0, length, slot % slots, true);
    }
    // As if there were a sequence in front and one behind, numbers −1 and `sequences`.
    const packed_ends ends{p.cu_seqlens, p.int64_seqlens};
    const int sequences = static_cast<int>(p.sequences);
    const auto start_of = [&](int sequence) {
      if (sequence < 0) return 0;
      return sequence > sequences ? length : ends.at(sequence, 0, length);
    };
    int sequence = -1;  // the last one whose slots begin here or before
    for (int count = sequences + 2; count > 1;) {
      const int half = count / 2, next = sequence + half;
      if (first_anchor_slot(true, next, start_of(next), length, Anchor) <= slot) sequence = next;
      count -= half;
    }
    const int start = start_of(sequence);
    return make(0, start, start_of(sequence + 1),
                slot - first_anchor_slot(true, sequence, start, length, Anchor),
                sequence >= 0 && sequence < sequences);
  }
};

// What a thread works on: a run of a slot's tokens, of a head.
template <class Config>
struct decay_run {
  const anchor_slot& slot;
  int head, first;  // the first of the slot's tokens that it has
  bool is_there;    // else another thread has the head too
  float terms[Config::tokens];

  KITTENS_DEVICE decay_run(const linear_attention_decay_gradient_params& p, const anchor_slot& slot,
                           int group)
      : slot(slot) {
    const int heads = static_cast<int>(p.heads), thread = arch::thread_id();
    head = group * Config::heads + thread % Config::heads;
    first = thread / Config::heads * Config::tokens;
    is_there = head < heads;
    if (!is_there) head = heads - 1;
  }

  // Number i of the run's tokens; or the last one of all, in whose place one is read that is not
  // there: without a branch, behind which the next one's loads would wait.
  KITTENS_DEVICE int token(int i) const {
    return slot.first + (first + i < slot.count ? first + i : slot.count - 1);
  }
  // Which of [B, S, H] is a token's.
  KITTENS_DEVICE int64_t place(const linear_attention_decay_gradient_params& p, int token) const {
    return (slot.batch * p.length + token) * p.heads + head;
  }

  KITTENS_DEVICE void load(const linear_attention_decay_gradient_params& p) {
    float q_dots[Config::tokens][Config::dots], k_dots[Config::tokens][Config::dots];
    float weights[Config::tokens];
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      const int64_t from = place(p, token(i)) * Config::dots;
#pragma unroll
      for (int d = 0; d < Config::dots; ++d) {
        q_dots[i][d] = arch::load_global(p.q_dots + from + d);
        k_dots[i][d] = arch::load_global(p.k_dots + from + d);
      }
    }
    load_weights(p, weights);
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      float q = q_dots[i][0], k = k_dots[i][0];
#pragma unroll
      for (int d = 1; d < Config::dots; ++d) {
        q += q_dots[i][d];
        k += k_dots[i][d];
      }
      terms[i] = first + i < slot.count ? q - weights[i] * k : 0;
    }
  }

  KITTENS_DEVICE void load_weights(const linear_attention_decay_gradient_params& p,
                                   float (&weights)[Config::tokens]) const {
#pragma unroll
    for (float& weight : weights) weight = 1;
    if (p.weights == nullptr) return;
    const float* const from =
        p.weights + slot.batch * p.weight_strides.batch + head * p.weight_strides.head;
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      weights[i] = arch::load_global(from + token(i) * p.weight_strides.token);
    }
  }

  // The gradients are `value` at the slot's first token; and behind the terms so much less, and by
  // `slope` a token more.
  KITTENS_DEVICE void store(const linear_attention_decay_gradient_params& p, float value, float sum,
                            float slope) const {
    if (!is_there) return;
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      if (first + i >= slot.count) return;
      arch::store_global(p.d_log_decay + place(p, slot.first + first + i),
                         value - sum + static_cast<float>(first + i) * slope);
      sum += terms[i];
    }
  }
};

// dg at a slot's anchor.
template <class Config>
KITTENS_DEVICE float add_up_products(const linear_attention_decay_gradient_params& p, int slot,
                                     int head) {
  const float* const from = p.products + (int64_t{slot} * p.heads + head) * 4 * Config::dots;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Config::dots; ++i) {
    const float4 four = arch::load_global(reinterpret_cast<const float4*>(from) + i);
    sum += (four.x + four.y) + (four.z + four.w);
  }
  return sum;
}

// Grid: slots · (heads / 8, rounded up).
template <class Config>
__global__ void __launch_bounds__(Config::threads) linear_attention_decay_gradient(
    const __grid_constant__ linear_attention_decay_gradient_params p) {
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<decay_gradient_shared<Config>*>(arch::dynamic_shared());
  const int groups = (static_cast<int>(p.heads) + Config::heads - 1) / Config::heads;
  const int number = arch::block_x() / groups;
  const anchor_slot slot = anchor_slot::of<Config::anchor>(p, number);
  if (slot.count <= 0) return;
  decay_run<Config> run(p, slot, arch::block_x() % groups);
  if (!slot.of_sequence) {
#pragma unroll
    for (float& term : run.terms) term = 0;
    return run.store(p, 0, 0, 0);
  }
  run.load(p);
  float here = 0, next = 0;  // dg at both ends
  if (!slot.begins || p.initial_state) here = add_up_products<Config>(p, number, run.head);
  if (!slot.ends) next = add_up_products<Config>(p, number + 1, run.head);
  float sum = 0;  // up to this run, and it too
#pragma unroll
  for (const float term : run.terms) sum += term;
#pragma unroll
  for (int lanes = Config::heads; lanes < kWarp; lanes *= 2) {
    const float front = arch::shuffle_up(sum, lanes);
    if (arch::lane_id() >= lanes) sum += front;
  }
  const int lane = arch::lane_id(), warp = arch::warp_id(), column = lane % Config::heads;
  if (lane >= kWarp - Config::heads) arch::store_shared(&shared.sums[warp][column], sum);
  const float before = arch::shuffle_up(sum, Config::heads);
  sum = lane < Config::heads ? 0 : before;
  arch::sync_block();
  float total = 0;
#pragma unroll
  for (int w = 0; w < Config::warps; ++w) {
    const float of_warp = arch::load_shared(&shared.sums[w][column]);
    total += of_warp;
    if (w < warp) sum += of_warp;
  }
  const bool is_known = !slot.ends || !p.d_final_state;
  const float error = is_known ? next - here + total : 0;
  run.store(p, here, sum, error / static_cast<float>(slot.count));
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
