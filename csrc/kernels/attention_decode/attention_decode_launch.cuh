// attention_decode: how its kernels are launched.
#pragma once

#include <algorithm>

#include "kernels/attention_decode/attention_decode_combine.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

inline constexpr int64_t kMostCombineBlocks = 1024;  // along the items
inline constexpr int64_t kCombineRows = 4;           // at a time

inline decode_arguments decode_arguments_of(const attention_decode_params& params) {
  const attention_decode_problem& p = params.problem;
  const decode_cache& c = p.cache;
  const double to_exponents = p.scale * kLog2e;
  return {
      .tensors = params.tensors,
      .parts = params.parts,
      .sums = params.sums,
      .owners = params.owners,
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
      .scale = float(p.softcap > 0 ? p.scale / p.softcap : to_exponents),
      .softcap = float(p.softcap * kLog2e),
      .paged = c.paged,
  };
}

// At least one item of one row.
template <class Config>
void launch_decode(const attention_decode_params& params, host::stream s) {
  const decode_arguments p = decode_arguments_of(params);
  const int64_t items = decode_items(params.problem);
  host::launch_programmatic(attention_decode<Config>,
                            {.grid = {params.blocks},
                             .block = {kWarps * kWarp},
                             .shared_bytes = sizeof(decode_shared<Config>)},
                            s, p);
  const int64_t rows = std::min<int64_t>({kCombineRows, kRows, p.queries * p.group});
  host::launch_programmatic(attention_decode_combine<Config>,
                            {.grid = {std::min(items, kMostCombineBlocks), rows},
                             .block = {kCombineWarps * kWarp},
                             .shared_bytes = sizeof(combine_shared<Config>)},
                            s, p);
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
