// The products beside gelu: how they are launched.
#pragma once

#include <algorithm>

#include "kernels/mlp/column_sums_launch.cuh"
#include "kernels/mlp/linear_gelu.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"

namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET {

// What both directions have, of their problem.
template <class Config>
linear_gelu_arguments<Config> arguments_of(const auto& p, const void* x, int64_t x_stride,
                                           const void* weight, const void* hidden, void* result) {
  using T = typename Config::type;
  const auto set = []<class Tile>(tma_map<Tile>& map, const void* data, int64_t rows,
                                  int64_t columns, int64_t stride) {
    auto* const from = static_cast<T*>(const_cast<void*>(data));
    map = tma_map<Tile>::of(gl<T>::matrix(from, rows, columns, stride));
  };
  constexpr int kTogether = 24;
  const int rows = int(host::ceil_div(p.rows, int64_t{Config::tile * Config::blocks}));
  const int columns = int(host::ceil_div(p.outer, int64_t{Config::tile}));
  linear_gelu_arguments<Config> a{};
  a.outer = int(p.outer);
  a.steps = int(host::ceil_div(p.inner, int64_t{Config::depth}));
  // Clusters that run at one time do some columns of tiles and some rows: what they read is little,
  // and is in the L2 cache.
  a.tiles =
      tile_scheduler{.rows = rows, .heads = columns, .together = std::min(columns, kTogether)};
  set(a.x, x, p.rows, p.inner, x_stride);
  if constexpr (Config::k_major) {
    set(a.weight, weight, p.outer, p.inner, p.weight_stride);
  } else {
    set(a.weight, weight, p.inner, p.outer, p.weight_stride);
  }
  if (hidden != nullptr) set(a.hidden, hidden, p.rows, p.outer, p.outer);
  set(a.result, result, p.rows, p.outer, p.outer);
  return a;
}

template <class Config>
void launch_product(const linear_gelu_arguments<Config>& arguments, host::stream s) {
  host::launch(linear_gelu<Config>,
               {.grid = {host::multiprocessors() / Config::blocks * Config::blocks},
                .block = {Config::threads},
                .shared_bytes = sizeof(linear_gelu_shared<Config>),
                .cluster = Config::blocks},
               s, arguments);
}

// Calls f with the configuration of a problem.
template <class T, template <class> class Function, bool Backward>
void with_layout(const auto& p, const auto& f) {
  if (p.k_major) return f(linear_gelu_config<T, Function, true, Backward>{});
  f(linear_gelu_config<T, Function, false, Backward>{});
}
template <class T, bool Backward>
void with_function(const auto& p, const auto& f) {
  const bool by_tanh = p.function == activation::gelu_tanh;
  if (by_tanh) return with_layout<T, gelu_tanh, Backward>(p, f);
  with_layout<T, gelu_erf, Backward>(p, f);
}
template <class T>
void launch_linear_gelu_type(const linear_gelu_params& params, host::stream s) {
  const linear_gelu_problem& p = params.problem;
  const linear_gelu_tensors& t = params.tensors;
  with_function<T, false>(p, [&]<class Config>(Config) {
    auto arguments = arguments_of<Config>(p, t.x, p.x_stride, t.weight, t.hidden, t.activated);
    arguments.bias = static_cast<const T*>(t.bias);
    arguments.keeps_hidden = t.hidden != nullptr;
    launch_product(arguments, s);
  });
}

template <class T>
void launch_linear_gelu_backward_type(const linear_gelu_backward_params& params, host::stream s) {
  const linear_gelu_backward_problem& p = params.problem;
  const linear_gelu_backward_tensors& t = params.tensors;
  with_function<T, true>(p, [&]<class Config>(Config) {
    auto arguments = arguments_of<Config>(p, t.dy, p.dy_stride, t.weight, t.hidden, t.dhidden);
    if (t.dbias != nullptr) arguments.partial = params.partial;
    launch_product(arguments, s);
  });
  if (t.dbias == nullptr) return;
  launch_add_parts<T>(dbias_parts(p.rows), p.outer, params.partial, t.dbias, t.accumulate, s);
}

}  // namespace thunderkittens::mlp_kernels::inline KITTENS_TARGET
