// hedgehog attention: how the generic kernel of the backward is launched.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_backward_passes.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_generic_gradient.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class T>
class generic_backward : hedgehog_backward<T> {
  using base = hedgehog_backward<T>;
  using base::blocks, base::p, base::params, base::runs, base::t;

 public:
  using base::base;

  void launch(host::stream s) const {
    using enum hedgehog_pass;
    if (blocks > 2) differentiate<states>(s);
    add_up_states<false>(s);
    differentiate<queries>(s);
    if (this->wants_keys()) {
      add_up_states<true>(s);
      differentiate<keys>(s);
    }
    this->finish(s);
  }

 private:
  template <bool Reverse>
  void add_up_states(host::stream s) const {
    const hedgehog_states_arguments<T> a{static_cast<T*>(params.states), params.state_sums,
                                         int(blocks)};
    host::launch(hedgehog_attention_states<T, Reverse>,
                 {{p.batch * p.heads * kStateBlocks}, {kSumThreads}}, s, a);
  }

  template <hedgehog_pass Pass>
  void differentiate(host::stream s) const {
    using Config = hedgehog_generic_gradient_config<T, static_cast<int>(Pass)>;
    using shared = hedgehog_attention_generic_gradient_shared<Config>;
    static_assert(host::fits_every_architecture(sizeof(shared)), "a block's shared memory");
    constexpr bool kQueries = Config::is_queries;
    const auto rows = [](const void* data, const hedgehog_attention_strides& strides,
                         int64_t columns) {
      return token_rows<T>{static_cast<const T*>(data), strides, int(columns)};
    };
    const auto q = rows(t.q, p.q_strides, p.head_dim), k = rows(t.k, p.k_strides, p.head_dim);
    const auto v = rows(t.v, p.v_strides, p.value_dim);
    const auto dy = rows(t.dy, params.problem.dy_strides, p.value_dim);
    hedgehog_generic_gradient_arguments<T> a{};
    this->set_arguments(a, kQueries);
    a.rows = kQueries ? q : k;
    a.row_values = kQueries ? dy : v;
    a.window = kQueries ? k : q;
    a.window_values = kQueries ? v : dy;
    a.map = static_cast<const T*>(kQueries ? t.q_map : t.k_map);
    a.states = static_cast<T*>(params.states);
    a.row_gradients = static_cast<T*>(kQueries ? t.dq : t.dk);
    a.value_gradients = static_cast<T*>(kQueries ? nullptr : t.dv);
    host::launch(hedgehog_attention_generic_gradient<Config>,
                 {{p.batch * p.heads * runs}, {kThreads}, sizeof(shared)}, s, a);
  }
};

template <class T>
void launch_hedgehog_attention_generic_backward(const hedgehog_attention_backward_params& p,
                                                host::stream s) {
  generic_backward<T>(p).launch(s);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
