// linear_gelu, its backward and column_sums: what the host passes to the launchers. No torch, no
// device code. (thunderkittens/kernels/mlp.h: what they compute.)
#pragma once

#include <cstdint>

#include "kittens/host/ceil_div.h"
#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/mlp.h"

namespace thunderkittens {

// A block's tile of the products has so many rows and columns; two blocks of a cluster have the
// same columns.
inline constexpr int kMlpTile = 128, kMlpBlocks = 2;

// What dbias is first: sums of 64 rows, of tiles that are not there, too.
inline int64_t dbias_parts(int64_t rows) {
  return kittens::host::ceil_div(rows, int64_t{kMlpBlocks * kMlpTile}) *
         (kMlpBlocks * kMlpTile / 64);
}

// Sums of columns are first those of so many rows: parts enough to keep a GPU busy, few enough to
// be added up again.
inline int64_t rows_of_part(int64_t rows) {
  return rows > 256 * 256 ? kittens::host::ceil_div(rows, int64_t{256}) : 256;
}

struct linear_gelu_params {
  linear_gelu_problem problem;
  linear_gelu_tensors tensors;
};
struct linear_gelu_backward_params {
  linear_gelu_backward_problem problem;
  linear_gelu_backward_tensors tensors;
  float* partial;  // [dbias_parts, outer], or null
};
struct column_sums_params {
  column_sums_problem problem;
  column_sums_tensors tensors;
  float* partial;  // [parts, width]
};

inline constexpr kittens::host::kernel_entry<linear_gelu_params> kLinearGelu{"linear_gelu"};
inline constexpr kittens::host::kernel_entry<linear_gelu_backward_params> kLinearGeluBackward{
    "linear_gelu_backward"};
inline constexpr kittens::host::kernel_entry<column_sums_params> kColumnSums{"column_sums"};

}  // namespace thunderkittens
