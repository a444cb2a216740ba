// attention_decode: how its kernels are launched.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/attention_decode/attention_decode_combine.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

// Items whose keys are read at once: one head at a time, 256 bytes here and there, takes 3 % more
// (benchmarks/attention_decode.md).
inline constexpr int kMostAbreast = 8;

inline decode_arguments decode_arguments_of(const attention_decode_params& params) {
  const attention_decode_problem& p = params.problem;
  const decode_cache& c = p.cache;
  const double to_exponents = p.scale * kLog2e;
  return {
      .tensors = params.tensors,
      .parts = params.parts,
      .sums = params.sums,
      .q_strides = p.q_strides,
      .o_strides = p.o_strides,
      .k_strides = c.k_strides,
      .v_strides = c.v_strides,
      .table_stride = c.table_stride,
      .batch = int(p.batch),
      .queries = int(p.queries),
      .group = int(p.heads / p.key_heads),
      .key_heads = int(p.key_heads),
      .row_tiles = int(decode_row_tiles(p)),
      .pages = int(c.pages),
      .page_size = int(c.page_size),
      .table_width = int(c.table_width),
      .capacity = int(c.capacity()),
      .left = int(std::min(p.left, c.capacity())),
      .workers = params.blocks * kWarps,
      .abreast = std::countr_zero(
          unsigned(kMostAbreast | params.blocks * kWarps | decode_items(p) / p.batch)),
      .scale = float(p.softcap > 0 ? p.scale / p.softcap : to_exponents),
      .softcap = float(p.softcap * kLog2e),
      .paged = c.paged,
  };
}

// With what a block of the second launch takes, which then waits beside the first one's, not for
// its end: left to itself the driver sets 196 KB aside for the rings' 192.
template <class Config>
inline constexpr size_t kDecodeSharedBytes =
    sizeof(decode_shared<Config>) + sizeof(combine_shared<Config, kCombineWarps>) + 1024;

template <class Config, int Warps>
void launch_combine(const attention_decode_params& params, host::stream s) {
  const attention_decode_problem& p = params.problem;
  const int64_t rows =
      decode_items(p) * std::min<int64_t>(kRows, p.queries * (p.heads / p.key_heads));
  host::launch_programmatic(attention_decode_combine<Config, Warps>,
                            {.grid = {host::ceil_div(rows, int64_t{kCombineWarps / Warps})},
                             .block = {kCombineWarps * kWarp},
                             .shared_bytes = Warps > 1 ? sizeof(combine_shared<Config, Warps>) : 0},
                            s, decode_arguments_of(params));
}

// At least one item of one row.
template <class Config>
void launch_decode(const attention_decode_params& params, host::stream s) {
  const int64_t workers = int64_t{params.blocks} * kWarps;
  host::launch_programmatic(attention_decode<Config>,
                            {.grid = {params.blocks},
                             .block = {kWarps * kWarp},
                             .shared_bytes = kDecodeSharedBytes<Config>},
                            s, decode_arguments_of(params));
  // Of equally long sequences; a warp has twice as many in two trips.
  const int64_t parts = workers / decode_items(params.problem) + 1;
  if (parts > 2 * kPartsAhead) return launch_combine<Config, kCombineWarps>(params, s);
  launch_combine<Config, 1>(params, s);
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
