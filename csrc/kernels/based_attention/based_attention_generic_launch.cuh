// based_attention: how a pass of the generic kernel is launched.
#pragma once

#include "kernels/based_attention/based_attention_generic.cuh"
#include "kernels/based_attention/based_attention_pass_launch.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
void launch_generic_pass(const based_attention_params& p, host::stream s) {
  using T = typename Config::type;
  using shared = based_attention_generic_shared<Config>;
  static_assert(host::fits_every_architecture(sizeof(shared)), "a block's shared memory");
  const auto rows = [](const based_attention_operand& of, int64_t width) {
    return token_rows<T>{static_cast<T*>(const_cast<void*>(of.data)), of.strides, int(width)};
  };
  based_attention_generic_arguments<T> t{};
  const int64_t blocks = set_arguments(t, p);
  t.keys = rows(p.k, p.keys);
  t.row_keys = rows(p.row_keys, p.keys);
  t.values = rows(p.v, p.values);
  t.row_values = rows(p.row_values, p.values);
  t.o = rows(result_of(p, p.o, p.values), p.values);
  t.key_gradients = rows(result_of(p, p.key_gradients, p.keys), p.keys);
  host::launch(based_attention_generic<Config>, {{blocks}, {Config::threads}, sizeof(shared)}, s,
               t);
}

// The states of the segments, where there is more than one, and then the outputs.
template <class T, based_attention_pass Pass>
void launch_based_attention_generic(const based_attention_params& p, host::stream s) {
  constexpr int kPass = static_cast<int>(Pass);
  if (p.segment_states != nullptr) {
    launch_generic_pass<based_attention_generic_config<T, kPass, false>>(p, s);
  }
  launch_generic_pass<based_attention_generic_config<T, kPass, true>>(p, s);
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
