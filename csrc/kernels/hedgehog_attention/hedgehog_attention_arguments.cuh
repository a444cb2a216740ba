// hedgehog attention: what the forward of either kernel is given, beside its tiles.
#pragma once

#include <cmath>

#include "kernels/hedgehog_attention/hedgehog_attention_state_passing.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launchers.h"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

inline void set_arguments(forward_arguments& a, const hedgehog_attention_params& params) {
  const hedgehog_attention_problem& p = params.problem;
  const hedgehog_attention_tensors& t = params.tensors;
  const int64_t blocks = host::ceil_div(p.length, kBlock);
  a.alpha = t.alpha;
  a.beta = t.beta;
  a.first = t.first;
  a.initial_kv = t.initial_kv;
  a.initial_sum = t.initial_sum;
  a.final_kv = t.final_kv;
  a.final_sum = t.final_sum;
  a.part_kv = params.part_kv;
  a.part_sum = params.part_sum;
  a.batch = int(p.batch);
  a.length = int(p.length);
  a.heads = int(p.heads);
  a.head_dim = int(p.head_dim);
  a.value_dim = int(p.value_dim);
  a.missing = p.has_window ? 0 : kBlock;
  a.segments = int(host::ceil_div(blocks, params.segment_blocks));
  a.segment_blocks = int(params.segment_blocks);
  a.parts = int(host::ceil_div(params.segment_blocks, params.part_blocks));
  a.part_blocks = int(params.part_blocks);
  a.passed = (a.segments - 1) * a.parts >= kFewestSlotsPassed;
  a.score_scale = kLog2e / std::sqrt(float(p.head_dim));
}
// Of threads: for each head its segments, or without outputs the parts of those that one follows.
inline int64_t blocks_of(const forward_arguments& a, bool outputs) {
  return int64_t{a.batch} * a.heads * (outputs ? a.segments : (a.segments - 1) * a.parts);
}

// The parts' states, of so many columns, become what segments begin with, beside the initial state,
// where they are many.
inline void pass_states(const hedgehog_attention_params& params, int64_t columns, host::stream s) {
  forward_arguments a;
  set_arguments(a, params);
  if (!a.passed) return;
  const int64_t heads = int64_t{a.batch} * a.heads;
  launch_state_passing<false>({.states = reinterpret_cast<float4*>(a.part_kv),
                               .sums = reinterpret_cast<float4*>(a.part_sum),
                               .state_vectors = heads * kWidth * columns / 4,
                               .sum_vectors = heads * kWidth / 4,
                               .slots = (a.segments - 1) * a.parts,
                               .parts = a.parts},
                              s);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
