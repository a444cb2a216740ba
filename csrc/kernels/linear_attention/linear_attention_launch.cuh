// linear attention: how a configuration of the kernel is launched.
#pragma once

#include "kernels/linear_attention/linear_attention_chunkwise.cuh"
#include "kernels/linear_attention/linear_attention_part_states.cuh"
#include "kernels/linear_attention/linear_attention_stream_launch.cuh"
#include "kernels/linear_attention/linear_attention_warp_specialized.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET {

// What a kernel of Config is given of a call. Returns how many blocks there are.
template <class Config>
int64_t set_tiles_and_arguments(linear_attention_arguments<Config>& t,
                                const linear_attention_params& p) {
  using T = typename Config::type;
  const auto view = [&](const linear_attention_operand& of, int64_t width) {
    const auto& [batch, token, head] = of.strides;
    return gl<T>{static_cast<T*>(const_cast<void*>(of.data)),
                 p.batch,
                 p.heads / of.share,
                 p.length,
                 width,
                 batch,
                 head,
                 token};
  };
  const bool packed = p.cu_seqlens != nullptr;
  const auto map = [&]<class Tile>(tma_sequence_map<Tile>& map, const gl<T>& view) {
    map = packed ? tma_sequence_map<Tile>::of_packed(view) : tma_sequence_map<Tile>::of(view);
  };
  const int64_t width = p.values * p.heads;
  map(t.q, view(p.q, p.keys));
  map(t.k, view(p.k, p.keys));
  map(t.v, view(p.v, p.values));
  map(t.o, view({p.o, {p.length * width, width, p.values}}, p.values));
  if (p.dots != nullptr) map(t.dotted, view(p.dotted, p.values));
  return set_arguments<Config>(t, p);
}

template <class Config>
void launch_linear_attention(const linear_attention_params& p, host::stream s) {
  linear_attention_arguments<Config> t{};
  const int64_t blocks = set_tiles_and_arguments(t, p);
  host::launch(linear_attention_chunkwise<Config>,
               {{blocks}, {Config::threads}, sizeof(linear_attention_chunkwise_shared<Config>)}, s,
               t);
}

// The states of the parts, where they are asked for, and then the outputs. Config<Outputs>: of
// which kernels.
template <template <bool> class Config>
void launch_parts_and_outputs(const linear_attention_params& p, host::stream s) {
  if (p.finds_parts) launch_linear_attention<Config<false>>(p, s);
  launch_linear_attention<Config<true>>(p, s);
}

// By programmatic dependent launch.
template <class Config>
void launch_programmatic(void (*kernel)(linear_attention_arguments<Config>), int shared,
                         const linear_attention_params& p, host::stream s) {
  linear_attention_arguments<Config> t{};
  const int64_t blocks = set_tiles_and_arguments(t, p);
  host::launch_programmatic(kernel, {{blocks}, {Config::threads}, shared}, s, t);
}

// Of heads whose gates the kernels make. Where each has a block, or half of one, there are no
// parts.
inline void launch_with_gates(const linear_attention_params& p, host::stream s) {
  if (!p.warp_specialized) return launch_linear_attention<linear_attention_pair_config>(p, s);
  if (p.finds_parts) {
    using config = linear_attention_part_config;
    launch_programmatic(linear_attention_part_states<config>,
                        sizeof(linear_attention_part_states_shared<config>), p, s);
  }
  using config = linear_attention_warp_specialized_config;
  launch_programmatic(linear_attention_warp_specialized<config>,
                      sizeof(linear_attention_warp_specialized_shared<config>), p, s);
}

template <class T, int KeyWidth, int Consumers, bool Reverse, bool Weighted>
void launch_linear_attention(const linear_attention_params& p, host::stream s) {
  if (p.finds_parts) {
    launch_linear_attention<
        linear_attention_config<T, KeyWidth, Consumers, Reverse, Weighted, false>>(p, s);
  }
  launch_linear_attention<linear_attention_config<T, KeyWidth, Consumers, Reverse, Weighted, true>>(
      p, s);
}

}  // namespace thunderkittens::linear_attention_kernels::inline KITTENS_TARGET
