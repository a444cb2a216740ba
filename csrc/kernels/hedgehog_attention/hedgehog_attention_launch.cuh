// hedgehog attention: how the kernel for Hopper is launched.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_arguments.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_forward.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_hedgehog_config(const hedgehog_attention_params& params, host::stream s) {
  using T = typename Config::type;
  const hedgehog_attention_problem& p = params.problem;
  const hedgehog_attention_tensors& t = params.tensors;
  const auto view = [&](const void* data, int64_t rows, int64_t columns,
                        const hedgehog_attention_strides& by) {
    return gl<T>{static_cast<T*>(const_cast<void*>(data)),
                 p.batch,
                 p.heads,
                 rows,
                 columns,
                 by.batch,
                 by.head,
                 by.token};
  };
  const auto map = [&](const void* data) {
    return gl<T>{static_cast<T*>(const_cast<void*>(data)),
                 1,
                 p.heads,
                 p.head_dim,
                 kHalf,
                 p.heads * p.head_dim * kHalf,
                 p.head_dim * kHalf,
                 kHalf};
  };
  const int64_t row = p.heads * p.value_dim, keys = p.length + (p.has_window ? kBlock : 0);
  hedgehog_arguments<Config> a{};
  a.q = decltype(a.q)::of(view(t.q, p.length, p.head_dim, p.q_strides));
  a.k = decltype(a.k)::of(view(t.k, keys, p.head_dim, p.k_strides));
  a.v = decltype(a.v)::of(view(t.v, keys, p.value_dim, p.v_strides));
  a.y = decltype(a.y)::of(view(t.y, p.length, p.value_dim, {p.length * row, row, p.value_dim}));
  a.q_map = decltype(a.q_map)::of(map(t.q_map));
  a.k_map = decltype(a.k_map)::of(map(t.k_map));
  set_arguments(a, params);
  host::launch(hedgehog_attention_forward<Config>,
               {{blocks_of(a, Config::outputs)},
                {kThreads},
                sizeof(hedgehog_attention_forward_shared<Config>)},
               s, a);
}

// What segments begin with, where there is more than one, and then the outputs.
template <class T, int Columns>
void launch_hedgehog_columns(const hedgehog_attention_params& p, host::stream s) {
  if (p.part_kv != nullptr) {
    launch_hedgehog_config<hedgehog_config<T, Columns, false>>(p, s);
    pass_states(p, Columns, s);
  }
  launch_hedgehog_config<hedgehog_config<T, Columns, true>>(p, s);
}
template <class T>
void launch_hedgehog_attention(const hedgehog_attention_params& p, host::stream s) {
  if (p.problem.head_dim <= kHalf && p.problem.value_dim <= kHalf) {
    return launch_hedgehog_columns<T, kHalf>(p, s);
  }
  launch_hedgehog_columns<T, kWidth>(p, s);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
