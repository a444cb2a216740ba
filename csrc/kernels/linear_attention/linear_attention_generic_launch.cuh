// linear attention: how a configuration of the generic kernel is launched.
#pragma once

#include "kernels/linear_attention/linear_attention_generic.cuh"
#include "kernels/linear_attention/linear_attention_stream_launch.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_linear_attention_generic(const linear_attention_params& p, host::stream s) {
  using T = typename Config::type;
  using shared = linear_attention_generic_shared<Config>;
  static_assert(host::fits_every_architecture(sizeof(shared)), "a block's shared memory");
  const auto operand = [](const linear_attention_operand& of) {
    return generic_operand<T>{static_cast<const T*>(of.data), of.strides, int(of.share)};
  };
  linear_attention_generic_arguments<T> t{};
  const int64_t blocks = set_arguments<Config>(t, p);
  t.q = operand(p.q);
  t.k = operand(p.k);
  t.v = operand(p.v);
  t.dotted = operand(p.dotted);
  t.o = static_cast<T*>(p.o);
  t.value_parts = int((p.values + kValues - 1) / kValues);
  host::launch(linear_attention_generic<Config>,
               {{blocks * t.value_parts}, {Config::threads}, sizeof(shared)}, s, t);
}

// The states of the parts, where they are asked for, and then the outputs.
template <class T, int KeyWidth, bool Reverse>
void launch_linear_attention_generic(const linear_attention_params& p, host::stream s) {
  if (p.finds_parts) {
    launch_linear_attention_generic<linear_attention_generic_config<T, KeyWidth, Reverse, false>>(
        p, s);
  }
  launch_linear_attention_generic<linear_attention_generic_config<T, KeyWidth, Reverse, true>>(p,
                                                                                               s);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
