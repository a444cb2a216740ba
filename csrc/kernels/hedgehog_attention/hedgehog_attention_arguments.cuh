// hedgehog attention: what the forward of either kernel is given, beside its tiles.
#pragma once

#include <cmath>

#include "kernels/hedgehog_attention/hedgehog_attention_tile.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// How many blocks of threads there are: for each head its segments.
inline int64_t set_arguments(forward_arguments& a, const hedgehog_attention_params& params) {
  const hedgehog_attention_problem& p = params.problem;
  const hedgehog_attention_tensors& t = params.tensors;
  const int64_t blocks = (p.length + kBlock - 1) / kBlock;
  const int64_t segments = (blocks + params.segment_blocks - 1) / params.segment_blocks;
  a.alpha = t.alpha;
  a.beta = t.beta;
  a.first = t.first;
  a.initial_kv = t.initial_kv;
  a.initial_sum = t.initial_sum;
  a.final_kv = t.final_kv;
  a.final_sum = t.final_sum;
  a.segment_kv = params.segment_kv;
  a.segment_sum = params.segment_sum;
  a.batch = int(p.batch);
  a.length = int(p.length);
  a.heads = int(p.heads);
  a.head_dim = int(p.head_dim);
  a.value_dim = int(p.value_dim);
  a.missing = p.has_window ? 0 : kBlock;
  a.segments = int(segments);
  a.segment_blocks = int(params.segment_blocks);
  a.score_scale = kLog2e / std::sqrt(float(p.head_dim));
  return p.batch * p.heads * segments;
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
