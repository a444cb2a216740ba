// based_attention: how a pass of the kernel for Hopper is launched.
#pragma once

#include "kernels/based_attention/based_attention.cuh"
#include "kernels/based_attention/based_attention_pass_launch.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_pass(const based_attention_params& p, host::stream s) {
  using T = typename Config::type;
  const auto view = [&](const based_attention_operand& of, int64_t width) {
    const auto& [batch, token, head] = of.strides;
    return gl<T>{static_cast<T*>(const_cast<void*>(of.data)),
                 p.batch,
                 p.heads,
                 p.length,
                 width,
                 batch,
                 head,
                 token};
  };
  based_attention_arguments<Config> t{};
  const int64_t blocks = set_arguments(t, p);
  t.keys = decltype(t.keys)::of(view(p.k, p.keys));
  t.values = decltype(t.values)::of(view(p.v, p.values));
  if constexpr (Config::outputs) {
    t.row_keys = decltype(t.row_keys)::of(view(p.row_keys, p.keys));
    if constexpr (Config::differentiates) {
      t.row_values = decltype(t.row_values)::of(view(p.row_values, p.values));
    }
    if (t.wants_o) t.o = decltype(t.o)::of(view(result_of(p, p.o, p.values), p.values));
    if (t.wants_key_gradients) {
      t.key_gradients =
          decltype(t.key_gradients)::of(view(result_of(p, p.key_gradients, p.keys), p.keys));
    }
  }
  host::launch(based_attention<Config>,
               {{blocks}, {Config::threads}, sizeof(based_attention_shared<Config>)}, s, t);
}

// The states of the segments, where there is more than one, and then the outputs.
template <class T, based_attention_pass Pass>
void launch_based_attention(const based_attention_params& p, host::stream s) {
  constexpr int kPass = static_cast<int>(Pass);
  if (p.segment_states != nullptr) launch_pass<based_attention_config<T, kPass, false>>(p, s);
  launch_pass<based_attention_config<T, kPass, true>>(p, s);
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
