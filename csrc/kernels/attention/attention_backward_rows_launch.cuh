// attention: what the launches of the backward's kernels have in common, whichever computes the
// products.
//
//   starts    of packed sequences, where they start
//   bounds    the largest |v|₂ and |k| of each block of a sequence's keys
//   prepare   of each row delta, lse and what takes its dq to integers; zeroes dq
//   (main)    dk, dv, and dq in integers: attention_backward_launch.cuh, or
//             attention_backward_generic_launch.cuh
//   finish    dq
//   sinks     the sinks' gradient
//
// Where dq is not added up (attention_backward_dq.cuh), delta takes the place of bounds and
// prepare, and the kernel of dq that of finish.
#pragma once

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_backward_rows.cuh"
#include "kernels/attention/attention_launch.cuh"
#include "kittens/host/launch.cuh"
#include "kittens/host/prefer_l1.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

inline constexpr int64_t kKeyHeadsTogether = 8;  // whose tiles a dynamic schedule mixes

inline attention_sequences sequences_of(const attention_backward_params& p,
                                        const attention_backward_layout& layout) {
  const int right = int(std::min(p.right, p.rows));
  if (!layout.packed) {
    return {int(p.rows), int(p.keys), right, nullptr, nullptr, 1, key_ranges_of(p)};
  }
  const auto starts = [&](int64_t at) { return reinterpret_cast<const int*>(p.workspace + at); };
  return {
      int(p.rows),          int(p.keys), right, starts(layout.q_starts), starts(layout.k_starts),
      int(p.sequences + 2), {}};
}

template <class T>
attention_rows_arguments<T> rows_arguments(const attention_backward_params& p,
                                           const attention_backward_layout& layout) {
  const auto rows_of = [](const void* data, const attention_strides& of) {
    return head_rows<T>{static_cast<const T*>(data), of.batch, of.row, of.head};
  };
  return {
      .o = rows_of(p.o, p.o_strides),
      .d_o = rows_of(p.d_o, p.do_strides),
      .k = rows_of(p.k, p.k_strides),
      .v = rows_of(p.v, p.v_strides),
      .dq = static_cast<T*>(p.dq),
      .lse = p.lse,
      .dlse = p.dlse,
      .sinks = p.sinks,
      .dsinks = p.dsinks,
      .row_blocks = p.workspace + layout.records,
      .dq_factors = reinterpret_cast<float*>(p.workspace + layout.dq_factors),
      .parts = reinterpret_cast<attention_dq_part*>(p.workspace + layout.dq),
      .bounds = reinterpret_cast<attention_key_bounds*>(p.workspace + layout.bounds),
      .sequences = sequences_of(p, layout),
      .batch = int(p.batch),
      .heads = int(p.heads),
      .key_heads = int(p.key_heads),
      .heads_per_key = int(p.heads / p.key_heads),
      .head_dim = int(p.head_dim),
      .value_dim = int(p.value_dim),
      .row_blocks_of_head = int(layout.row_blocks),
      .bounds_of_head = int(layout.bounds_of_head),
      .scale = p.scale,
  };
}

// What the kernel of the products is told. Its blocks of queries are the layout's, or parts of
// them.
template <class Config>
void set_call(attention_backward_call<Config::rows>& t, const attention_backward_params& p,
              const attention_backward_layout& layout) {
  constexpr int kRows = Config::rows;
  static_assert(Config::keys >= attention_backward_layout::kLeastKeys);
  const int64_t key_blocks = layout.blocks(p, p.keys, Config::keys);
  const int64_t together =
      p.tile_counter == nullptr ? 1 : std::min(kKeyHeadsTogether, p.key_heads * p.batch);
  t.row_blocks = reinterpret_cast<const attention_row_block<kRows>*>(p.workspace + layout.records);
  t.dq = reinterpret_cast<attention_dq_part*>(p.workspace + layout.dq);
  t.dq_factors = reinterpret_cast<float*>(p.workspace + layout.dq_factors);
  // The first keys are those that most rows see under a causal mask.
  t.tiles = {int(key_blocks), int(p.key_heads), int(p.batch), false, int(together), p.tile_counter};
  t.sequences = sequences_of(p, layout);
  t.row_blocks_of_head = int(layout.row_blocks * (layout.rows / kRows));
  t.heads = int(p.heads);
  t.heads_per_key = int(p.heads / p.key_heads);
  t.left = int(std::min(p.left, p.keys));
  t.right = int(std::min(p.right, p.rows));
  t.softcap = attention_softcap::of(p.scale, p.softcap);
  t.scale_log2 = (p.softcap > 0 ? p.softcap : p.scale) * kLog2e;
  t.scale = p.scale;
}

inline void launch_starts(const attention_backward_params& p,
                          const attention_backward_layout& layout, host::stream s) {
  host::launch_programmatic(attention_backward_starts<kStartsThreads>, {{1}, {kStartsThreads}}, s,
                            attention_starts_arguments{
                                .q = {p.cu_seqlens_q, p.int64_seqlens_q},
                                .k = {p.cu_seqlens_k, p.int64_seqlens_k},
                                .rows = int(p.rows),
                                .keys = int(p.keys),
                                .count = int(p.sequences + 1),
                                .q_starts = reinterpret_cast<int*>(p.workspace + layout.q_starts),
                                .k_starts = reinterpret_cast<int*>(p.workspace + layout.k_starts)});
}

// A launch of one of the kernels around the products, which have most of the shared memory.
template <auto Kernel, class... P>
void launch_streaming(const host::launch_config& config, host::stream s, const P&... arguments) {
  host::prefer_l1<Kernel>();
  host::launch_programmatic(Kernel, config, s, arguments...);
}

template <class Config>
void launch_finish(const attention_backward_params& p,
                   const attention_rows_arguments<typename Config::type>& rows, int64_t row_blocks,
                   host::stream s) {
  const host::launch_config config{{row_blocks}, {kRowThreads}};
  if (p.dq_strides == contiguous_strides(p.rows, p.heads, p.head_dim)) {
    return launch_streaming<attention_backward_finish<Config>>(config, s, rows);
  }
  launch_streaming<attention_backward_finish_strided<Config>>(
      config, s, attention_strided_rows_arguments<typename Config::type>{rows, p.dq_strides});
}

// All of the kernels, with launch_products() for the one between them. Config:
// attention_backward_rows_config.
template <class Config, class F>
void launch_around(const attention_backward_params& p, const attention_backward_layout& layout,
                   host::stream s, F launch_products) {
  static_assert(sizeof(attention_key_bounds) == attention_backward_layout::kBoundsBytes);
  static_assert(kKeysOfBounds == attention_backward_layout::kKeysOfBounds);
  constexpr int64_t kOfWarps = kRowThreads / 32 * sizeof(attention_key_bounds);
  const auto rows = rows_arguments<typename Config::type>(p, layout);
  const int64_t row_blocks = layout.row_blocks * p.heads * p.batch;
  const int64_t bounds = layout.bounds_of_head * p.key_heads * p.batch;
  if (layout.packed) launch_starts(p, layout, s);
  if constexpr (Config::adds_dq) {
    launch_streaming<attention_backward_bounds<Config>>({{bounds}, {kRowThreads}, kOfWarps}, s,
                                                        rows);
    launch_streaming<attention_backward_prepare<Config>>({{row_blocks}, {kRowThreads}}, s, rows);
  } else {
    launch_streaming<attention_backward_delta<Config>>(
        {{row_blocks}, {kRowThreads}}, s,
        attention_strided_rows_arguments<typename Config::type>{rows, p.dq_strides});
  }
  launch_products();
  if constexpr (Config::adds_dq) {
    if (p.dq != nullptr) launch_finish<Config>(p, rows, row_blocks, s);
  }
  if (p.dsinks != nullptr) {
    // The same kernel, however dq is computed.
    using sinks_config =
        attention_backward_rows_config<typename Config::type, Config::head_dim, /*AddsDq=*/true>;
    host::launch_programmatic(attention_backward_sinks<sinks_config>,
                              {{p.heads}, {kSinkThreads}, kSinkThreads / 32 * sizeof(float)}, s,
                              rows);
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
