// Which kernels cross_entropy's forward has, and which rows each takes: data, from which
// cross_entropy.cu and cross_entropy_sm90.cu make the kernels and choose among them. Figures:
// benchmarks/cross_entropy.md.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "kernels/cross_entropy/cross_entropy.h"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

enum class forward_kernel {
  rows,      // cross_entropy_rows: a row in the registers of a block, or of a cluster
  loss,      // cross_entropy_loss
  two_pass,  // cross_entropy_two_pass: a row read again, from the caches
  stream,    // cross_entropy_stream: a row in shared memory, chunk by chunk
};
enum class when {
  always,
  few_rows,   // few_cross_entropy_rows
  many_loss,  // many rows, of which the loss alone is wanted
  no_total,   // the launch need not add up the losses
};

struct forward_form {
  const char* name;
  forward_kernel kernel = forward_kernel::rows;
  int vectors = 0;  // of 16 bytes, of a lane: of the row, or of a chunk
  int warps = 0;    // of a block, at most
  int blocks = 1;   // of a row, at most: a cluster
  int slots = 0;    // of the ring of chunks
  // The row's vectors of 16 bytes: more than `above`, and at most `to`.
  int64_t above = 0, to = std::numeric_limits<int>::max();
  when condition = when::always;

  constexpr bool in_cluster() const { return blocks > 1; }
};

// Those of every architecture.
inline constexpr forward_form kOneWarp{
    .name = "one warp", .vectors = 4, .warps = 1, .above = -1, .to = 128};
inline constexpr forward_form kLossAlone{.name = "loss alone",
                                         .kernel = forward_kernel::loss,
                                         .above = 1024,
                                         .condition = when::many_loss};
inline constexpr forward_form kOneBlock{
    .name = "one block", .vectors = 8, .warps = 16, .to = 4096, .condition = when::no_total};

// The first that takes the rows is launched. In two passes a multiprocessor has one long row at a
// time, so that what all blocks read again fits in the caches: 8192 × 50304 bf16 take 625 µs, and
// 672 with two at a time (H100).
inline constexpr auto kGenericForms = std::to_array<forward_form>({
    kOneWarp,
    kLossAlone,
    kOneBlock,
    {.name = "two passes", .kernel = forward_kernel::two_pass, .warps = 32},
});

// On Hopper. Those that are not for it alone are launched as generic ones, of the table above. Few
// rows are faster where a multiprocessor has one at a time: 132 × 50304 bf16 takes 7.9 µs in the
// ring and 11.8 by the loss's kernel, but 8192 rows 256 and 191 (H200).
inline constexpr auto kHopperForms = std::to_array<forward_form>({
    kOneWarp,
    {.name = "few rows", .vectors = 4, .warps = 16, .blocks = 8, .condition = when::few_rows},
    kLossAlone,
    kOneBlock,
    {.name = "ring", .kernel = forward_kernel::stream, .vectors = 2, .warps = 16, .slots = 13},
});

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
