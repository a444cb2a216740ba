// cross_entropy's forward: which form of a table takes the rows, and the launch of what Hopper
// shares with all architectures.
#pragma once

#include "kernels/cross_entropy/cross_entropy_configs.cuh"
#include "kernels/cross_entropy/cross_entropy_rows.cuh"
#include "kittens/host/ceil_div.h"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

// By a generic kernel. The specialised launcher calls it too, so that none is compiled twice.
void launch_generic(const cross_entropy_forward_params& p, kittens::host::stream s);

// The kernels find out themselves which of a row's accesses are aligned.
template <class F>
void with_type(dtype type, F f) {
  with_elements(type, /*aligned=*/true, [&]<class T, int>() { f(T{}); });
}

// Of form I of a table.
template <class T, const auto& Forms, size_t I>
using rows_config = cross_entropy_rows_config<T, Forms[I].vectors, Forms[I].warps, Forms[I].blocks>;

// Blocks of a row: as many as there are multiprocessors for, where less would have more than the
// columns of four warps each.
template <class Config>
int64_t blocks_of_row(const cross_entropy_forward_params& p, int processors) {
  constexpr int64_t kLeastColumns = 4 * Config::warp_columns;
  int64_t blocks = 1;
  while (blocks < Config::max_blocks && 2 * blocks * p.rows <= processors &&
         blocks * kLeastColumns < p.width) {
    blocks *= 2;
  }
  return blocks;
}

inline bool holds(when condition, const cross_entropy_forward_params& p, int processors) {
  const bool few = few_cross_entropy_rows(p.rows, p.width, processors);
  switch (condition) {
    case when::few_rows: return few;
    case when::many_loss: return !few && p.gradient == nullptr;
    case when::no_total: return p.total == nullptr;
    case when::always: break;
  }
  return true;
}

template <class T, const auto& Forms, size_t I>
bool takes(const cross_entropy_forward_params& p, int processors) {
  constexpr forward_form form = Forms[I];
  constexpr int64_t kLength = vector16<T>::kLength;
  if (p.width <= form.above * kLength || p.width > form.to * kLength) return false;
  if constexpr (form.in_cluster()) {
    using config = rows_config<T, Forms, I>;
    if (p.width > blocks_of_row<config>(p, processors) * config::block_columns) return false;
  }
  return holds(form.condition, p, processors);
}

// Calls f.template operator()<I>() with the number of the first form of a table that takes the
// rows, or of the last one.
template <class T, const auto& Forms, size_t I = 0, class F>
void with_form(const cross_entropy_forward_params& p, int processors, const F& f) {
  if constexpr (I + 1 < Forms.size()) {
    if (!takes<T, Forms, I>(p, processors)) return with_form<T, Forms, I + 1>(p, processors, f);
  }
  f.template operator()<I>();
}

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
