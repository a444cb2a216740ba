// attention_decode: how its kernel is launched.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/attention_decode/attention_decode.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

inline constexpr int kMostAbreast = 8;

// Of d ≥ 1.
inline divisor divisor_of(int64_t d) {
  const int shift = 31 + std::bit_width(uint64_t(d) - 1);
  return {unsigned(host::ceil_div((int64_t{1} << shift), d)), shift};
}

// Heads: of keys, of an item.
inline decode_arguments decode_arguments_of(const attention_decode_params& params, int heads) {
  const attention_decode_problem& p = params.problem;
  const decode_cache& c = p.cache;
  const double to_exponents = p.scale * kLog2e;
  return {
      .tensors = params.tensors,
      .parts = params.parts,
      .counters = params.counters,
      .q_strides = p.q_strides,
      .o_strides = p.o_strides,
      .k_strides = c.k_strides,
      .v_strides = c.v_strides,
      .table_stride = c.table_stride,
      .batch = int(p.batch),
      .queries = int(p.queries),
      .group = int(p.heads / p.key_heads),
      .key_heads = int(p.key_heads / heads),
      .row_tiles = int(decode_row_tiles(p)),
      .pages = int(c.pages),
      .page_size = int(c.page_size),
      .table_width = int(c.table_width),
      .capacity = int(c.capacity()),
      .left = int(std::min(p.left, c.capacity())),
      .by_group = divisor_of(p.heads / p.key_heads),
      .by_row_tiles = divisor_of(decode_row_tiles(p)),
      .by_page_size = divisor_of(c.page_size),
      .blocks = params.blocks,
      .share = params.share,
      .abreast = std::countr_zero(unsigned(kMostAbreast | params.blocks * kWarps >> params.share |
                                           decode_items(p, heads) / p.batch)),
      .scale = float(p.softcap > 0 ? p.scale / p.softcap : to_exponents),
      .softcap = float(p.softcap * kLog2e),
      .paged = c.paged,
      .tiles_are_runs = !c.paged || c.page_size % kKeys == 0,
      .head_dim = int(p.head_dim),
  };
}

// At least one item of one row.
template <class Config>
void launch_decode(const attention_decode_params& params, host::stream s) {
  constexpr size_t kBytes = sizeof(decode_shared<Config>);
  static_assert(kBytes <= size_t{1024} * Config::form.shared_kb, "a block's shared memory");
  host::launch_programmatic(
      attention_decode<Config>,
      {.grid = {params.blocks}, .block = {kWarps * kWarp}, .shared_bytes = kBytes}, s,
      decode_arguments_of(params, Config::heads));
}

// The form for as many rows as the problem has.
template <class T, decode_heads Heads, class Cache, int SharedKb = kBlockSharedKb>
void launch_heads(const attention_decode_params& params, host::stream s) {
  if (decode_rows(params.problem) == kDecodeFewRows) {
    return launch_decode<decode_config_of<T, Heads, Cache, kDecodeFewRows, SharedKb>>(params, s);
  }
  launch_decode<decode_config_of<T, Heads, Cache, kDecodeRows, SharedKb>>(params, s);
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
