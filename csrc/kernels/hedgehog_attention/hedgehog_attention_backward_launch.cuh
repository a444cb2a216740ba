// hedgehog attention: how the backward is launched on Hopper.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_backward_passes.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_gradient.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class T>
class hopper_backward : hedgehog_backward<T> {
  using base = hedgehog_backward<T>;
  using base::p, base::params, base::parts, base::runs, base::t;

 public:
  using base::base;

  void launch(host::stream s) const {
    using enum hedgehog_pass;
    differentiate<queries>(s);
    if (this->wants_keys()) differentiate<keys>(s);
    this->finish(s);
  }

 private:
  gl<T> view(const void* data, int64_t columns, const hedgehog_attention_strides& by) const {
    return {static_cast<T*>(const_cast<void*>(data)),
            p.batch,
            p.heads,
            p.length,
            columns,
            by.batch,
            by.head,
            by.token};
  }
  gl<T> result(void* data, int64_t columns) const {
    const int64_t row = p.heads * columns;
    return view(data, columns, {p.length * row, row, columns});
  }
  gl<T> map_of(const void* data) const {
    return {static_cast<T*>(const_cast<void*>(data)),
            1,
            p.heads,
            p.head_dim,
            kHalf,
            p.heads * p.head_dim * kHalf,
            p.head_dim * kHalf,
            kHalf};
  }

  template <hedgehog_pass Pass>
  void differentiate(host::stream s) const {
    if (runs > 1) {
      launch_pass<Pass, false>(s);
      if (this->passes_states()) pass_states<Pass == hedgehog_pass::keys>(s);
    }
    launch_pass<Pass, true>(s);
  }
  // The parts' states become what runs begin with.
  template <bool Reverse>
  void pass_states(host::stream s) const {
    const int64_t heads = p.batch * p.heads;
    launch_state_passing<Reverse>({.states = static_cast<float4*>(params.states),
                                   .sums = reinterpret_cast<float4*>(params.state_sums),
                                   .state_vectors = heads * kWidth * kWidth / 4,
                                   .sum_vectors = heads * kWidth / 4,
                                   .slots = int((runs - 1) * parts),
                                   .parts = int(parts)},
                                  s);
  }
  // Outputs: else what parts of runs add to the state alone.
  template <hedgehog_pass Pass, bool Outputs>
  void launch_pass(host::stream s) const {
    using Config = hedgehog_gradient_config<T, static_cast<int>(Pass), Outputs>;
    constexpr bool kQueries = Config::is_queries;
    hedgehog_gradient_arguments<Config> a{};
    const auto q = view(t.q, p.head_dim, p.q_strides), k = view(t.k, p.head_dim, p.k_strides);
    const auto v = view(t.v, p.value_dim, p.v_strides);
    const auto dy = view(t.dy, p.value_dim, params.problem.dy_strides);
    using tokens = decltype(a.rows);
    using gradient = decltype(a.row_gradients);
    a.window = tokens::of(kQueries ? k : q);
    a.window_values = tokens::of(kQueries ? v : dy);
    a.window_map = decltype(a.map)::of(map_of(kQueries ? t.k_map : t.q_map));
    if constexpr (Outputs) {
      a.rows = tokens::of(kQueries ? q : k);
      a.row_values = tokens::of(kQueries ? dy : v);
      a.map = decltype(a.map)::of(map_of(kQueries ? t.q_map : t.k_map));
      void* const d_rows = kQueries ? t.dq : t.dk;
      void* const d_values = kQueries ? nullptr : t.dv;
      a.wants_row_gradients = d_rows != nullptr;
      a.wants_value_gradients = d_values != nullptr;
      if (a.wants_row_gradients) a.row_gradients = gradient::of(result(d_rows, p.head_dim));
      if (a.wants_value_gradients) {
        a.value_gradients = gradient::of(result(d_values, p.value_dim));
      }
    }
    a.part_states = static_cast<float4*>(params.states);
    this->set_arguments(a, kQueries);
    const int64_t count = p.batch * p.heads * (Outputs ? runs : (runs - 1) * parts);
    host::launch(hedgehog_attention_gradient<Config>,
                 {{count}, {Config::threads}, sizeof(hedgehog_attention_gradient_shared<Config>)},
                 s, a);
  }
};

template <class T>
void launch_hedgehog_attention_backward(const hedgehog_attention_backward_params& p,
                                        host::stream s) {
  hopper_backward<T>(p).launch(s);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
