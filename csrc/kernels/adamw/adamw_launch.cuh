// How the kernels of AdamW are launched.
#pragma once

#include <algorithm>

#include "kernels/adamw/adamw_norm.cuh"
#include "kernels/adamw/adamw_update.cuh"
#include "kittens/host/launch.cuh"

namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET {

template <class T>
void launch_norm(const adamw_norm_params& p, host::stream s) {
  using config = adamw_norm_config<T>;
  const int blocks = std::clamp(p.table.chunks, 1, kAdamwNormBlocks);
  host::launch_programmatic(
      adamw_norm<config>,
      {.grid = {blocks}, .block = {config::threads}, .shared_bytes = config::shared_bytes}, s, p);
}

// Of more than this a block each is faster, for then the GPU evens out who is late (GPT-2 124M in
// float32 on an H200: 865 µs, not 907); of fewer, blocks that go round (9.5 million parameters:
// 82 µs, not 84).
inline constexpr int kAdamwManyChunks = 16384;

template <class P, class M, bool Master>
void launch_update(const adamw_update_params& p, host::stream s) {
  using config = adamw_config<P, M, Master>;
  const int at_once = host::multiprocessors() * config::min_blocks, chunks = p.table.chunks;
  const int blocks = chunks > kAdamwManyChunks ? chunks : std::clamp(chunks, 1, at_once);
  host::launch_programmatic(adamw_update<config>, {.grid = {blocks}, .block = {config::threads}}, s,
                            p);
}

}  // namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET
