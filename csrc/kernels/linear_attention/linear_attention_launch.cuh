// linear attention: how a configuration of the kernel is launched.
#pragma once

#include <array>
#include <cstdint>
#include <span>

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

// What a forward with gates reads, beside states.
class constant_inputs {
 public:
  explicit constant_inputs(const linear_attention_params& p) {
    const auto add_tensor = [&](const linear_attention_operand& of, int64_t width) {
      const auto& [batch, token, head] = of.strides;
      add(of.data,
          (p.batch - 1) * batch + (p.length - 1) * token + (p.heads / of.share - 1) * head + width,
          2);
    };
    add_tensor(p.q, p.keys);
    add_tensor(p.k, p.keys);
    add_tensor(p.v, p.values);
    const auto& [batch, token, head] = p.steps.strides;
    add(p.steps.dt, (p.batch - 1) * batch + (p.length - 1) * token + (p.heads - 1) * head + 1,
        p.steps.element_bytes());
    add(p.steps.a, p.heads, 4);
    add(p.steps.bias, p.heads, 4);
    add(p.skip, p.heads, 4);
  }
  std::span<const host::memory_range> ranges() const { return {ranges_.data(), count_}; }

 private:
  std::array<host::memory_range, 7> ranges_;
  size_t count_ = 0;

  // In whole words of 4 bytes, as dt is read.
  void add(const void* data, int64_t elements, int64_t bytes) {
    if (data == nullptr) return;
    const auto first = reinterpret_cast<uintptr_t>(data), word = first / 4 * 4;
    const int64_t end = int64_t(first - word) + elements * bytes;
    ranges_[count_++] = {reinterpret_cast<const void*>(word), (end + 3) / 4 * 4};
  }
};

// By programmatic dependent launch.
template <class Config>
void launch_programmatic(void (*kernel)(linear_attention_arguments<Config>), int shared,
                         const linear_attention_params& p, host::stream s,
                         std::span<const host::memory_range> constant = {}) {
  linear_attention_arguments<Config> t{};
  const int64_t blocks = set_tiles_and_arguments(t, p);
  t.is_behind_parts = !constant.empty();
  host::launch_programmatic(
      kernel,
      {.grid = {blocks}, .block = {Config::threads}, .shared_bytes = shared, .constant = constant},
      s, t);
}

// Of heads whose gates the kernels make. Where each has a block, or half of one, there are no
// parts.
inline void launch_with_gates(const linear_attention_params& p, host::stream s) {
  if (!p.warp_specialized) return launch_linear_attention<linear_attention_pair_config>(p, s);
  const constant_inputs inputs(p);
  std::span<const host::memory_range> constant;  // of the launch that is behind the parts'
  if (p.finds_parts) {
    using config = linear_attention_part_config;
    launch_programmatic(linear_attention_part_states<config>,
                        sizeof(linear_attention_part_states_shared<config>), p, s);
    constant = inputs.ranges();
  }
  using config = linear_attention_warp_specialized_config;
  launch_programmatic(linear_attention_warp_specialized<config>,
                      sizeof(linear_attention_warp_specialized_shared<config>), p, s, constant);
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
