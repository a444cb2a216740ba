// Embeddings, the biases of k and v, and additions.
#include <algorithm>

#include "runs.cuh"

namespace gpt2 {
namespace {

// Rows that a warp loads together. One at a time, the gradient of the embedding of 64 × 1024
// tokens, of which the most frequent is 9 %, took 0.57 ms on an H200, not 0.26.
constexpr int kAtOnce = 8;

host::launch_config one_thread_each(int64_t count) {
  return {.grid = {ceil_div(count, kThreads)}, .block = {kThreads}};
}

KITTENS_DEVICE int64_t thread_of_grid() {
  return int64_t{arch::block_x()} * kThreads + arch::thread_id();
}

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

// Grid: (blocks that share out the distinct tokens, slices of a row). Warp w of a block adds rows
// w, w + warps, … of a token.
template <class T>
__global__ void __launch_bounds__(kThreads,
                                  2)  // without, ptxas takes 40 registers: no room for the rows
    embed_backward_kernel(int64_t width, token_batch batch, const T* dx, T* dwte) {
  const int64_t column = int64_t{arch::block_y()} * kSlice<T> + arch::lane_id() * kRun<T>;
  const bool inside = column < width;
  const T* const of_first = dx + (inside ? column : 0);
  const int distinct = arch::load_global(batch.distinct);
  for (int i = arch::block_x(); i < distinct; i += arch::grid_x()) {
    const int end = arch::load_global(batch.starts + i + 1);
    float sum[kRun<T>] = {};
    int at = arch::load_global(batch.starts + i) + arch::warp_id();
    for (; at + (kAtOnce - 1) * kWarps < end; at += kAtOnce * kWarps) {
      lane_run<T, kRun<T>> runs[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const int64_t row = arch::load_global(batch.rows_of + at + r * kWarps);
        detail::run_access<T, kRun<T>>::load(runs[r], of_first + row * width, true);
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) add_run(sum, runs[r]);
    }
    for (; at < end; at += kWarps) {
      const int64_t row = arch::load_global(batch.rows_of + at);
      add_loaded(sum, of_first + row * width);
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

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(int64_t count, const T* from, T* to) {
  const int64_t at = thread_of_grid() * kRun<T>;
  if (at >= count) return;
  float sum[kRun<T>];
  load(sum, to + at);
  add_loaded(sum, from + at);
  store(to + at, sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(int64_t count, int64_t parts, const T* from, T* to) {
  const int64_t at = thread_of_grid() * kRun<T>;
  if (at >= count) return;
  float sum[kRun<T>] = {};
  for (int64_t part = 0; part < parts; ++part) add_loaded(sum, from + part * count + at);
  store(to + at, sum);
}

// Warp w of the grid: element w of both gradients.
template <class T>
__global__ void __launch_bounds__(kThreads)
    key_value_bias_kernel(int64_t width, const T* proj, const T* dproj_bias, T* dk, T* dv) {
  begin_dependent_grid();
  const int64_t row = int64_t{arch::block_x()} * kWarps + arch::warp_id();
  if (row >= width) return;
  float sum = 0;
  for (int64_t at = arch::lane_id() * kRun<T>; at < width; at += kSlice<T>) {
    float weights[kRun<T>], gradients[kRun<T>];
    load(weights, proj + row * width + at);
    load(gradients, dproj_bias + at);
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) sum = arch::fma(weights[e], gradients[e], sum);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += arch::shuffle_xor(sum, mask);
  if (arch::lane_id() != 0) return;
  arch::store_global(dk + row, convert<T>(0.0f));
  arch::store_global(dv + row, convert<T>(sum));
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

void key_value_bias_backward(dtype type, int64_t width, const void* proj, const void* dproj_bias,
                             void* dk, void* dv, stream s) {
  with_type(type, [&]<class T>(T) {
    const host::launch_config config{.grid = {ceil_div(width, kWarps)}, .block = {kThreads}};
    host::launch_programmatic(key_value_bias_kernel<T>, config, s, width,
                              static_cast<const T*>(proj), static_cast<const T*>(dproj_bias),
                              static_cast<T*>(dk), static_cast<T*>(dv));
  });
}

void add(dtype type, int64_t count, const void* from, void* to, stream s) {
  with_type(type, [&]<class T>(T) {
    host::launch(add_kernel<T>, one_thread_each(count / kRun<T>), s, count,
                 static_cast<const T*>(from), static_cast<T*>(to));
  });
}

void add_parts(dtype type, int64_t count, int64_t parts, const void* from, void* to, stream s) {
  with_type(type, [&]<class T>(T) {
    host::launch(add_parts_kernel<T>, one_thread_each(count / kRun<T>), s, count, parts,
                 static_cast<const T*>(from), static_cast<T*>(to));
  });
}

}  // namespace gpt2
