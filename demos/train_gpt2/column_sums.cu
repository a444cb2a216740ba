// Sums of a matrix' columns: gradients of biases.
#include "runs.cuh"

namespace gpt2 {
namespace {

inline constexpr int kAhead = 8;  // rows that a warp has in flight

// Grid: (slices of a row, parts of the rows). Warp w of a part adds its rows w, w + 8, …
template <class T>
__global__ void __launch_bounds__(kThreads, 3)
    column_sums_kernel(column_sums_problem p, const T* x, float* partial) {
  using access = detail::run_access<T, kRun<T>>;
  const int64_t column = int64_t{arch::block_x()} * kSlice<T> + arch::lane_id() * kRun<T>;
  const bool inside = column < p.width;
  // The last rows first: what has written x has left them in the L2.
  const int64_t part = p.parts() - 1 - arch::block_y();
  const int64_t first = part * p.rows_of_part(), more = p.rows - first;
  const int64_t end = first + (more < p.rows_of_part() ? more : p.rows_of_part());
  int64_t row = first + arch::warp_id();
  int64_t at = row * p.stride + column;
  const int64_t step = kWarps * p.stride;
  float sum[kRun<T>] = {};
  for (; inside && row + (kAhead - 1) * kWarps < end; row += kAhead * kWarps) {
    lane_run<T, kRun<T>> runs[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) access::load(runs[a], x + at + a * step, true);
#pragma unroll
    for (const auto& run : runs) add_run(sum, run);
    at += kAhead * step;
  }
  for (; inside && row < end; row += kWarps, at += step) add_loaded(sum, x + at);
  add_warps(sum);
  if (arch::warp_id() != 0 || !inside) return;
#pragma unroll
  for (int e = 0; e < kRun<T>; ++e) {
    arch::store_global(partial + part * p.width + column + e, sum[e]);
  }
}

// Grid: groups of 32 columns. Warp w adds parts w, w + 8, …
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(int64_t parts, int64_t width, const float* partial, T* sums, bool accumulate) {
  begin_dependent_grid();
  const int64_t column = int64_t{arch::block_x()} * 32 + arch::lane_id();
  const bool inside = column < width;
  const float* from = partial + arch::warp_id() * width + column;
  float sum[1] = {};
#pragma unroll 8
  for (int64_t part = arch::warp_id(); part < parts; part += kWarps, from += kWarps * width) {
    if (inside) sum[0] += arch::load_global(from);
  }
  add_warps(sum);
  if (arch::warp_id() != 0 || !inside) return;
  T* const to = sums + column;
  if (accumulate) sum[0] += convert<float>(arch::load_global(to));
  arch::store_global(to, convert<T>(sum[0]));
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

void add_parts(dtype type, int64_t parts, int64_t width, const float* partial, void* sums,
               bool accumulate, stream s) {
  with_type(type, [&]<class T>(T) {
    const host::launch_config config{.grid = {ceil_div(width, 32)},
                                     .block = {kThreads},
                                     .shared_bytes = kThreads * sizeof(float)};
    host::launch_programmatic(add_parts_kernel<T>, config, s, parts, width, partial,
                              static_cast<T*>(sums), accumulate);
  });
}

void column_sums(const column_sums_problem& p, const void* x, void* sums, bool accumulate,
                 void* workspace, stream s) {
  auto* partial = static_cast<float*>(workspace);
  with_type(p.type, [&]<class T>(T) {
    const host::launch_config config{.grid = {ceil_div(p.width, kSlice<T>), p.parts()},
                                     .block = {kThreads},
                                     .shared_bytes = kSharedBytes<T>};
    host::launch(column_sums_kernel<T>, config, s, p, static_cast<const T*>(x), partial);
  });
  add_parts(p.type, p.parts(), p.width, partial, sums, accumulate, s);
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

}  // namespace gpt2
