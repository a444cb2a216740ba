// hedgehog attention: how the backward is launched.
#pragma once

#include <cmath>

#include "kernels/hedgehog_attention/hedgehog_attention_gradient.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_sums.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class T>
class hedgehog_backward {
 public:
  explicit hedgehog_backward(const hedgehog_attention_backward_params& params)
      : params(params),
        p(params.problem.forward),
        t(params.tensors),
        blocks((p.length + kBlock - 1) / kBlock),
        runs((blocks + params.run_blocks - 1) / params.run_blocks) {}

  void launch(host::stream s) const {
    using enum hedgehog_pass;
    const bool wants_keys = t.dk != nullptr || t.dv != nullptr || t.dk_map != nullptr;
    if (blocks > 2) differentiate<states>(s);
    add_up_states<false>(s);
    differentiate<queries>(s);
    if (wants_keys) {
      add_up_states<true>(s);
      differentiate<keys>(s);
    }
    finish(s);
  }

 private:
  const hedgehog_attention_backward_params& params;
  const hedgehog_attention_problem& p;
  const hedgehog_attention_backward_tensors& t;
  const int64_t blocks, runs;

  gl<T> view(const void* data, const hedgehog_attention_strides& by) const {
    return {static_cast<T*>(const_cast<void*>(data)),
            p.batch,
            p.heads,
            p.length,
            kWidth,
            by.batch,
            by.head,
            by.token};
  }
  gl<T> result(void* data) const {
    const int64_t row = p.heads * kWidth;
    return view(data, {p.length * row, row, kWidth});
  }
  // [outer, rows, columns], contiguous.
  gl<T> matrices(const void* data, int64_t outer, int64_t rows, int64_t columns) const {
    return {static_cast<T*>(const_cast<void*>(data)),
            1,
            outer,
            rows,
            columns,
            outer * rows * columns,
            rows * columns,
            columns};
  }

  template <hedgehog_pass Pass>
  void differentiate(host::stream s) const {
    using Config = hedgehog_gradient_config<T, static_cast<int>(Pass)>;
    constexpr bool kQueries = Config::is_queries;
    hedgehog_gradient_arguments<Config> a{};
    const auto q = view(t.q, p.q_strides), k = view(t.k, p.k_strides), v = view(t.v, p.v_strides);
    const auto dy = view(t.dy, params.problem.dy_strides);
    using tokens = decltype(a.rows);
    using gradient = decltype(a.row_gradients);
    a.rows = tokens::of(kQueries ? q : k);
    a.row_values = tokens::of(kQueries ? dy : v);
    if constexpr (!Config::is_states) {
      a.window = tokens::of(kQueries ? k : q);
      a.window_values = tokens::of(kQueries ? v : dy);
      void* const d_rows = kQueries ? t.dq : t.dk;
      void* const d_values = kQueries ? nullptr : t.dv;
      a.wants_row_gradients = d_rows != nullptr;
      a.wants_value_gradients = d_values != nullptr;
      if (a.wants_row_gradients) a.row_gradients = gradient::of(result(d_rows));
      if (a.wants_value_gradients) a.value_gradients = gradient::of(result(d_values));
    }
    a.map = decltype(a.map)::of(matrices(kQueries ? t.q_map : t.k_map, p.heads, kWidth, kHalf));
    a.states =
        decltype(a.states)::of(matrices(params.states, p.batch * p.heads, blocks * kWidth, kWidth));
    a.state_sums = params.state_sums;
    a.factors = static_cast<float4*>(params.factors);
    a.map_parts = kQueries ? params.q_map_parts : params.k_map_parts;
    a.weight_parts = params.weight_parts;
    a.alpha = t.alpha;
    a.beta = t.beta;
    a.batch = int(p.batch);
    a.length = int(p.length);
    a.heads = int(p.heads);
    a.blocks = int(blocks);
    a.runs = int(runs);
    a.run_blocks = int(params.run_blocks);
    a.scale = 1 / std::sqrt(float(kWidth));
    a.score_scale = kLog2e * a.scale;
    host::launch(hedgehog_attention_gradient<Config>,
                 {{p.batch * p.heads * runs},
                  {kThreads},
                  sizeof(hedgehog_attention_gradient_shared<Config>)},
                 s, a);
  }

  template <bool Reverse>
  void add_up_states(host::stream s) const {
    const hedgehog_states_arguments<T> a{static_cast<T*>(params.states), params.state_sums,
                                         int(blocks)};
    host::launch(hedgehog_attention_states<T, Reverse>,
                 {{p.batch * p.heads * kStateBlocks}, {kSumThreads}}, s, a);
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
    };
    host::launch(hedgehog_attention_finish<T>, {{p.heads * kFinishBlocks}, {kSumThreads}}, s, a);
  }
};

template <class T>
void launch_hedgehog_attention_backward(const hedgehog_attention_backward_params& p,
                                        host::stream s) {
  hedgehog_backward<T>(p).launch(s);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
