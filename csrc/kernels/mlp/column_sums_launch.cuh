// Sums of columns: how they are launched.
#pragma once

#include "kernels/mlp/column_sums.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET {

// The sums of partial [parts, width].
template <class T>
void launch_add_parts(int64_t parts, int64_t width, const float* partial, void* sums,
                      bool accumulate, host::stream s) {
  using Config = column_sums_config<T>;
  host::launch_programmatic(add_parts<Config>,
                            {.grid = {host::ceil_div(width, int64_t{32})},
                             .block = {Config::part_threads},
                             .shared_bytes = Config::part_threads * int64_t{sizeof(float)}},
                            s, parts, width, partial, static_cast<T*>(sums), accumulate);
}

template <class T>
void launch_column_sums(const column_sums_params& params, host::stream s) {
  using Config = column_sums_config<T>;
  const column_sums_problem& p = params.problem;
  const int64_t rows = rows_of_part(p.rows), parts = host::ceil_div(p.rows, rows);
  if (parts > 0) {
    host::launch(column_sums<Config>,
                 {.grid = {host::ceil_div(p.width, int64_t{Config::slice}), parts},
                  .block = {Config::threads},
                  .shared_bytes = Config::warps * Config::slice * int64_t{sizeof(float)}},
                 s, static_cast<const T*>(params.tensors.x), p.rows, p.width, p.stride, rows,
                 params.partial);
  }
  launch_add_parts<T>(parts, p.width, params.partial, params.tensors.sums,
                      params.tensors.accumulate, s);
}

}  // namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET
