// hedgehog attention: how the generic kernel is launched.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_arguments.cuh"
#include "kernels/hedgehog_attention/hedgehog_attention_generic.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_hedgehog_generic_config(const hedgehog_attention_params& params, host::stream s) {
  using T = typename Config::type;
  using shared = hedgehog_attention_generic_shared<Config>;
  static_assert(host::fits_every_architecture(sizeof(shared)), "a block's shared memory");
  const hedgehog_attention_problem& p = params.problem;
  const hedgehog_attention_tensors& t = params.tensors;
  const auto rows = [](const void* data, const hedgehog_attention_strides& strides,
                       int64_t columns) {
    return token_rows<T>{static_cast<const T*>(data), strides, int(columns)};
  };
  hedgehog_generic_arguments<T> a{};
  set_arguments(a, params);
  a.q = rows(t.q, p.q_strides, p.head_dim);
  a.k = rows(t.k, p.k_strides, p.head_dim);
  a.v = rows(t.v, p.v_strides, p.value_dim);
  a.q_map = static_cast<const T*>(t.q_map);
  a.k_map = static_cast<const T*>(t.k_map);
  a.y = static_cast<T*>(t.y);
  host::launch(hedgehog_attention_generic<Config>,
               {{blocks_of(a, Config::outputs)}, {Config::threads}, sizeof(shared)}, s, a);
}

// What segments begin with, where there is more than one, and then the outputs.
template <class T>
void launch_hedgehog_attention_generic(const hedgehog_attention_params& p, host::stream s) {
  if (p.part_kv != nullptr) {
    launch_hedgehog_generic_config<hedgehog_generic_config<T, false>>(p, s);
    pass_states(p, p.problem.value_dim, s);
  }
  launch_hedgehog_generic_config<hedgehog_generic_config<T, true>>(p, s);
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
