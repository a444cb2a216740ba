// What both kernels of AdamW do with their table: chunks of its tensors, runs of a chunk, and the
// block that ends last.
#pragma once

#include <kittens.cuh>

#include "kernels/adamw/adamw.h"

namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kAdamwThreads = 256;
inline constexpr int kElements = kAdamwChunk / kAdamwThreads;  // of a thread in a chunk

// The number of the tensor that a chunk belongs to: the last one whose first chunk is not behind
// it. (Of tensors without elements, the one behind them has the same first chunk.)
KITTENS_DEVICE int tensor_of(const adamw_table& table, int chunk) {
  int low = 0, high = table.tensors - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.entries[middle].first_chunk <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// A chunk: its tensor, and where it starts there.
struct adamw_chunk {
  const adamw_entry& tensor;
  int64_t start;

  KITTENS_DEVICE adamw_chunk(const adamw_table& table, int chunk)
      : tensor(table.entries[tensor_of(table, chunk)]),
        start(int64_t(chunk - tensor.first_chunk) * kAdamwChunk) {}
};

// One thread's runs of `N` elements in a chunk, a whole number of them in the tensor; the elements
// behind the last whole run, and all of a tensor that is not aligned, are runs of one.
template <int N, class F>
KITTENS_DEVICE void for_each_part(const adamw_chunk& c, const F& f) {
  const int64_t left = c.tensor.size - c.start;
  const int length = left < kAdamwChunk ? static_cast<int>(left) : kAdamwChunk;
  const int in_runs = c.tensor.aligned ? length / N * N : 0;
  if (in_runs > 0) f.template operator()<N>(0, in_runs);
  if (in_runs < length) f.template operator()<1>(in_runs, length);
}

// Whether the calling warp, the first of its block, is that of the block which ends last: it then
// sees what all others have written before they called. One warp of each block calls, after the
// block's threads have met.
KITTENS_DEVICE bool ends_last(int* counter) {
  int before = 0;
  if (arch::lane_id() == 0) {
    arch::fence_device();
    before = arch::atomic_add(counter, 1);
  }
  const bool last = arch::shuffle(before, 0) == arch::grid_x() - 1;
  if (last) {
    arch::fence_device();
    if (arch::lane_id() == 0) arch::atomic_exchange(counter, 0);
  }
  return last;
}

}  // namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET
