// cache_append: how its kernel is launched.
#pragma once

#include <algorithm>

#include "kernels/attention_decode/cache_append.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

inline append_arguments append_arguments_of(const cache_append_params& params) {
  const cache_append_problem& p = params.problem;
  const decode_cache& c = p.cache;
  return {
      .tensors = params.tensors,
      .k_strides = p.k_strides,
      .v_strides = p.v_strides,
      .k_cache_strides = c.k_strides,
      .v_cache_strides = c.v_strides,
      .cos_stride = p.cos_stride,
      .sin_stride = p.sin_stride,
      .table_stride = c.table_stride,
      .table_rows = p.table_rows,
      .batch = int(p.batch),
      .tokens = int(p.tokens),
      .key_heads = int(p.key_heads),
      .width = int(p.head_dim),
      .rotated = int(p.rotated),
      .pages = int(c.pages),
      .page_size = int(c.page_size),
      .table_width = int(c.table_width),
      .capacity = int(c.capacity()),
      .paged = c.paged,
      .float_tables = p.table_type == dtype::float32,
  };
}

// Whether runs of 16 bytes start at multiples of them, pairs too. (Tables are read by elements.)
inline bool appends_in_runs(const cache_append_params& params) {
  const cache_append_problem& p = params.problem;
  const cache_append_tensors& t = params.tensors;
  const int64_t size = bytes_of(p.type);
  int64_t apart = p.head_dim | p.rotated / 2;
  for (const decode_strides* s :
       {&p.k_strides, &p.v_strides, &p.cache.k_strides, &p.cache.v_strides}) {
    apart |= s->batch | s->token | s->head;
  }
  return in_runs_of_16_bytes({t.k, t.v, t.k_cache, t.v_cache}, {apart * size});
}

// At least one element.
template <class T, int Run, class Cache>
void launch_append(const cache_append_params& params, host::stream s) {
  const append_arguments p = append_arguments_of(params);
  const int64_t units = int64_t{p.width / Run} * p.key_heads;
  host::launch_programmatic(
      cache_append<T, Run, Cache>,
      {.grid = {host::ceil_div(units, int64_t{kAppendThreads}),
                std::min<int64_t>(int64_t{p.batch} * p.tokens, host::kMaxGridYZ)},
       .block = {kAppendThreads}},
      s, p);
}

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
