// Embeddings and sums of columns: lanes move 16 bytes of a row at a time. No sum meets another in
// an atomic, so all have the same bits on every run.
#include "kernels.h"

#include <kittens/host/ceil_div.h>
#include <kittens.cuh>
#include <kittens/host/launch.cuh>

#include <algorithm>

namespace gpt2 {
namespace {

using namespace kittens;
using host::ceil_div;

constexpr int kThreads = 256, kWarps = kThreads / 32;

template <class T>
constexpr int kRun = 16 / int(sizeof(T));
template <class T>
constexpr int kSlice = 32 * kRun<T>;  // elements of a row that a warp moves

template <class T>
KITTENS_DEVICE void load(float (&values)[kRun<T>], const T* from) {
  lane_run<T, kRun<T>> run;
  detail::run_access<T, kRun<T>>::load(run, from, true);
  run.get(values);
}

template <class T>
KITTENS_DEVICE void store(T* to, const float (&values)[kRun<T>]) {
  lane_run<T, kRun<T>> run;
  run.set(values);
  detail::run_access<T, kRun<T>>::store(to, run, true);
}

template <class T>
KITTENS_DEVICE void add_run(float (&values)[kRun<T>], const lane_run<T, kRun<T>>& run) {
  float more[kRun<T>];
  run.get(more);
#pragma unroll
  for (int e = 0; e < kRun<T>; ++e) values[e] += more[e];
}

// values += what is at `from`
template <class T>
KITTENS_DEVICE void add_loaded(float (&values)[kRun<T>], const T* from) {
  lane_run<T, kRun<T>> run;
  detail::run_access<T, kRun<T>>::load(run, from, true);
  add_run(values, run);
}

// Calls f(T{}) with the element type.
template <class F>
void with_type(dtype type, F f) {
  if (type == dtype::float32) return f(float{});
  if (type == dtype::bfloat16) return f(bf16{});
  throw host::error("train_gpt2: tensors are float32 or bfloat16");
}

host::launch_config one_thread_each(int64_t count) {
  return {.grid = {ceil_div(count, kThreads)}, .block = {kThreads}};
}

KITTENS_DEVICE int64_t thread_of_grid() {
  return int64_t{arch::block_x()} * kThreads + arch::thread_id();
}

// ---- Embeddings ---------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(embedding e, const int* tokens, const T* wte, const T* wpe, T* x) {
  const int64_t runs = e.width / kRun<T>, at = thread_of_grid();
  const int64_t row = at / runs, column = at % runs * kRun<T>;
  if (row >= e.batch * e.length) return;
  float values[kRun<T>];
  load(values, wte + int64_t{arch::load_global(tokens + row)} * e.width + column);
  if (wpe != nullptr) add_loaded(values, wpe + row % e.length * e.width + column);
  store(x + row * e.width + column, values);
}

// The sum of each warp's values over the block, in warp 0, in the order of the warps.
template <int N>
KITTENS_DEVICE void add_warps(float (&values)[N]) {
  auto* shared = reinterpret_cast<float*>(arch::dynamic_shared());
  const int warp = arch::warp_id(), lane = arch::lane_id();
#pragma unroll
  for (int e = 0; e < N; ++e) arch::store_shared(shared + (warp * N + e) * 32 + lane, values[e]);
  arch::sync_block();
  if (warp == 0) {
    for (int w = 1; w < kWarps; ++w) {
#pragma unroll
      for (int e = 0; e < N; ++e) values[e] += arch::load_shared(shared + (w * N + e) * 32 + lane);
    }
  }
  arch::sync_block();
}

template <class T>
constexpr int64_t kSharedBytes = kWarps * kSlice<T> * sizeof(float);

// Grid: (blocks that share out the distinct tokens, slices of a row). Warp w of a block adds rows
// w, w + warps, … of a token.
template <class T>
__global__ void __launch_bounds__(kThreads, 4)  // without, ptxas takes 32 registers, and spills
    embed_backward_kernel(int64_t width, token_batch batch, const T* dx, T* dwte) {
  const int64_t column = int64_t{arch::block_y()} * kSlice<T> + arch::lane_id() * kRun<T>;
  const bool inside = column < width;
  const int distinct = arch::load_global(batch.distinct);
  for (int i = arch::block_x(); i < distinct; i += arch::grid_x()) {
    const int end = arch::load_global(batch.starts + i + 1);
    float sum[kRun<T>] = {};
    for (int at = arch::load_global(batch.starts + i) + arch::warp_id(); at < end; at += kWarps) {
      const int64_t row = arch::load_global(batch.rows_of + at);
      if (inside) add_loaded(sum, dx + row * width + column);
    }
    add_warps(sum);
    if (arch::warp_id() != 0 || !inside) continue;
    T* const to = dwte + int64_t{arch::load_global(batch.tokens + i)} * width + column;
    add_loaded(sum, to);
    store(to, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    position_backward_kernel(embedding e, const T* dx, T* dwpe, bool accumulate) {
  const int64_t at = thread_of_grid() * kRun<T>, size = e.length * e.width;
  if (at >= size) return;
  float sum[kRun<T>] = {};
  for (int64_t b = 0; b < e.batch; ++b) add_loaded(sum, dx + b * size + at);
  if (accumulate) add_loaded(sum, dwpe + at);
  store(dwpe + at, sum);
}

// ---- Sums of columns ----------------------------------------------------------------------------

constexpr int kAhead = 8;  // rows that a warp has in flight

// Grid: (slices of a row, parts of the rows, matrices). Warp w of a part adds its rows w, w + 8, …
template <class T>
__global__ void __launch_bounds__(kThreads, 3)
    column_sums_kernel(column_sums_problem p, const T* x, float* partial) {
  const int64_t column = int64_t{arch::block_x()} * kSlice<T> + arch::lane_id() * kRun<T>;
  const bool inside = column < p.width;
  // The last rows first: what has written x has left them in the L2.
  const int64_t part = p.parts() - 1 - arch::block_y(), matrix = arch::block_z();
  const int64_t first = part * p.rows_of_part(), more = p.rows - first;
  const int64_t end = first + (more < p.rows_of_part() ? more : p.rows_of_part());
  int64_t row = first + arch::warp_id();
  const T* from = x + (matrix * p.rows + row) * p.width + column;
  float sum[kRun<T>] = {};
  for (; inside && row + (kAhead - 1) * kWarps < end; row += kAhead * kWarps) {
    lane_run<T, kRun<T>> runs[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      detail::run_access<T, kRun<T>>::load(runs[a], from + a * kWarps * p.width, true);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) add_run(sum, runs[a]);
    from += kAhead * kWarps * p.width;
  }
  for (; inside && row < end; row += kWarps, from += kWarps * p.width) add_loaded(sum, from);
  add_warps(sum);
  if (arch::warp_id() != 0 || !inside) return;
#pragma unroll
  for (int e = 0; e < kRun<T>; ++e) {
    arch::store_global(partial + (matrix * p.parts() + part) * p.width + column + e, sum[e]);
  }
}

// Grid: (groups of 32 columns, matrices). Warp w adds parts w, w + 8, … of a matrix.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(column_sums_problem p, const float* partial, T* sums, bool accumulate) {
  begin_dependent_grid();
  const int64_t column = int64_t{arch::block_x()} * 32 + arch::lane_id();
  const bool inside = column < p.width;
  const int64_t matrix = arch::block_y();
  const float* from = partial + (matrix * p.parts() + arch::warp_id()) * p.width + column;
  float sum[1] = {};
#pragma unroll 8
  for (int64_t part = arch::warp_id(); part < p.parts(); part += kWarps, from += kWarps * p.width) {
    if (inside) sum[0] += arch::load_global(from);
  }
  add_warps(sum);
  if (arch::warp_id() != 0 || !inside) return;
  T* const to = sums + matrix * p.width + column;
  if (accumulate) sum[0] += convert<float>(arch::load_global(to));
  arch::store_global(to, convert<T>(sum[0]));
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(int64_t count, const T* from, T* to) {
  const int64_t at = thread_of_grid() * kRun<T>;
  if (at >= count) return;
  float sum[kRun<T>];
  load(sum, to + at);
  add_loaded(sum, from + at);
  store(to + at, sum);
}

}  // namespace

void embed(const embedding& e, const token_batch& batch, const void* wte, const void* wpe, void* x,
           stream s) {
  with_type(e.type, [&]<class T>(T) {
    const int64_t threads = e.batch * e.length * (e.width / kRun<T>);
    host::launch(embed_kernel<T>, one_thread_each(threads), s, e, batch.inputs,
                 static_cast<const T*>(wte), static_cast<const T*>(wpe), static_cast<T*>(x));
  });
}

void embed_backward(const embedding& e, const token_batch& batch, const void* dx, void* dwte,
                    void* dwpe, bool accumulate, stream s) {
  with_type(e.type, [&]<class T>(T) {
    const auto* from = static_cast<const T*>(dx);
    const int64_t blocks = std::min(e.batch * e.length, int64_t{8} * host::multiprocessors());
    const host::launch_config config{.grid = {blocks, ceil_div(e.width, kSlice<T>)},
                                     .block = {kThreads},
                                     .shared_bytes = kSharedBytes<T>};
    host::launch(embed_backward_kernel<T>, config, s, e.width, batch, from, static_cast<T*>(dwte));
    if (dwpe == nullptr) return;
    host::launch(position_backward_kernel<T>, one_thread_each(e.length * e.width / kRun<T>), s, e,
                 from, static_cast<T*>(dwpe), accumulate);
  });
}

void column_sums(const column_sums_problem& p, const void* x, void* sums, bool accumulate,
                 void* workspace, stream s) {
  with_type(p.type, [&]<class T>(T) {
    const host::launch_config config{.grid = {ceil_div(p.width, kSlice<T>), p.parts(), p.matrices},
                                     .block = {kThreads},
                                     .shared_bytes = kSharedBytes<T>};
    auto* partial = static_cast<float*>(workspace);
    host::launch(column_sums_kernel<T>, config, s, p, static_cast<const T*>(x), partial);
    const host::launch_config last{.grid = {ceil_div(p.width, 32), p.matrices},
                                   .block = {kThreads},
                                   .shared_bytes = kThreads * sizeof(float)};
    host::launch_programmatic(add_parts_kernel<T>, last, s, p, partial, static_cast<T*>(sums), accumulate);
  });
}

void add(dtype type, int64_t count, const void* from, void* to, stream s) {
  with_type(type, [&]<class T>(T) {
    host::launch(add_kernel<T>, one_thread_each(count / kRun<T>), s, count,
                 static_cast<const T*>(from), static_cast<T*>(to));
  });
}

}  // namespace gpt2
