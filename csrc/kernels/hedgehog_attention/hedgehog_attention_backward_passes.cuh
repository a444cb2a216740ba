// hedgehog attention, backward: what the launches of a call are given, of both kernels.
// (hedgehog_attention_gradient.cuh)
#pragma once

#include <cmath>

#include "kernels/hedgehog_attention/hedgehog_attention_gradient_tile.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_state_passing.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_sums.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class T>
class hedgehog_backward {
 public:
  explicit hedgehog_backward(const hedgehog_attention_backward_params& params)
      : params(params),
        p(params.problem.forward),
        t(params.tensors),
        blocks(host::ceil_div(p.length, kBlock)),
        runs(host::ceil_div(blocks, params.run_blocks)),
        parts(host::ceil_div(params.run_blocks, params.part_blocks)) {}

 protected:
  const hedgehog_attention_backward_params& params;
  const hedgehog_attention_problem& p;
  const hedgehog_attention_backward_tensors& t;
  const int64_t blocks, runs, parts;

  bool passes_states() const { return (runs - 1) * parts >= kFewestSlotsPassed; }
  bool wants_keys() const { return t.dk != nullptr || t.dv != nullptr || t.dk_map != nullptr; }

  // Of a pass, of queries or not.
  void set_arguments(gradient_arguments& a, bool queries) const {
    a.state_sums = params.state_sums;
    a.factors = static_cast<float4*>(params.factors);
    a.map_parts = queries ? params.q_map_parts : params.k_map_parts;
    a.weight_parts = params.weight_parts;
    a.alpha = t.alpha;
    a.beta = t.beta;
    a.batch = int(p.batch);
    a.length = int(p.length);
    a.heads = int(p.heads);
    a.head_dim = int(p.head_dim);
    a.value_dim = int(p.value_dim);
    a.blocks = int(blocks);
    a.runs = int(runs);
    a.run_blocks = int(params.run_blocks);
    a.parts = int(parts);
    a.part_blocks = int(params.part_blocks);
    a.passed = passes_states();
    a.scale = 1 / std::sqrt(float(p.head_dim));
    a.score_scale = kLog2e * a.scale;
  }

  void finish(host::stream s) const {
    const hedgehog_finish_arguments<T> a{
        .map_parts = {params.q_map_parts, params.k_map_parts},
        .weight_parts = params.weight_parts,
        .alpha = t.alpha,
        .beta = t.beta,
        .d_maps = {static_cast<T*>(t.dq_map), static_cast<T*>(t.dk_map)},
        .dalpha = t.dalpha,
        .dbeta = t.dbeta,
        .parts = int(p.batch * runs),
        .heads = int(p.heads),
        .head_dim = int(p.head_dim),
    };
    host::launch(hedgehog_attention_finish<T>, {{p.heads * kFinishBlocks}, {kSumThreads}}, s, a);
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
