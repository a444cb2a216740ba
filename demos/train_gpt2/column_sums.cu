// Sums of a matrix' columns: gradients of biases, and with that of a bias gelu's.
#include "kernels/activation/functions.cuh"
#include "runs.cuh"

namespace gpt2 {
namespace {

// What is added up: a run as it is; or one of a gradient, which first becomes, in its place, that
// of what gelu was taken of.
template <class T>
struct run_as_it_is {
  static constexpr int kAhead = 8;  // rows that a warp has in flight
  struct loaded {
    lane_run<T, kRun<T>> run;
  };

  const T* x;

  KITTENS_DEVICE void load(loaded& l, int64_t at) const {
    detail::run_access<T, kRun<T>>::load(l.run, x + at, true);
  }
  KITTENS_DEVICE void add(float (&sum)[kRun<T>], const loaded& l, int64_t) const {
    add_run(sum, l.run);
  }
};
template <class T>
struct run_behind_gelu {
  static constexpr int kAhead = 4;
  struct loaded {
    lane_run<T, kRun<T>> hidden, gradient;
  };

  const T* hidden;
  T* gradient;

  KITTENS_DEVICE void load(loaded& l, int64_t at) const {
    detail::run_access<T, kRun<T>>::load(l.hidden, hidden + at, true);
    detail::run_access<T, kRun<T>>::load(l.gradient, gradient + at, true);
  }
  KITTENS_DEVICE void add(float (&sum)[kRun<T>], const loaded& l, int64_t at) const {
    float x[kRun<T>], d[kRun<T>];
    l.hidden.get(x);
    l.gradient.get(d);
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) {
      d[e] *= thunderkittens::activation_kernels::gelu_tanh<T>::at(x[e]).slope;
    }
    lane_run<T, kRun<T>> rounded;
    rounded.set(d);
    detail::run_access<T, kRun<T>>::store(gradient + at, rounded, true);
    add_run(sum, rounded);
  }
};

// Grid: (slices of a row, parts of the rows). Warp w of a part adds its rows w, w + 8, …
template <class T, class Run>
__global__ void __launch_bounds__(kThreads, 3)
    column_sums_kernel(column_sums_problem p, Run run, float* partial) {
  constexpr int kAhead = Run::kAhead;
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
    typename Run::loaded runs[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) run.load(runs[a], at + a * step);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) run.add(sum, runs[a], at + a * step);
    at += kAhead * step;
  }
  for (; inside && row < end; row += kWarps, at += step) {
    typename Run::loaded one;
    run.load(one, at);
    run.add(sum, one, at);
  }
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
    add_parts_kernel(column_sums_problem p, const float* partial, T* sums, bool accumulate) {
  begin_dependent_grid();
  const int64_t column = int64_t{arch::block_x()} * 32 + arch::lane_id();
  const bool inside = column < p.width;
  const float* from = partial + arch::warp_id() * p.width + column;
  float sum[1] = {};
#pragma unroll 8
  for (int64_t part = arch::warp_id(); part < p.parts(); part += kWarps, from += kWarps * p.width) {
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

template <class T, class Run>
void launch_sums(const column_sums_problem& p, const Run& run, void* sums, bool accumulate,
                 void* workspace, stream s) {
  const host::launch_config config{.grid = {ceil_div(p.width, kSlice<T>), p.parts()},
                                   .block = {kThreads},
                                   .shared_bytes = kSharedBytes<T>};
  auto* partial = static_cast<float*>(workspace);
  host::launch(column_sums_kernel<T, Run>, config, s, p, run, partial);
  const host::launch_config last{.grid = {ceil_div(p.width, 32)},
                                 .block = {kThreads},
                                 .shared_bytes = kThreads * sizeof(float)};
  host::launch_programmatic(add_parts_kernel<T>, last, s, p, partial, static_cast<T*>(sums),
                            accumulate);
}

}  // namespace

void column_sums(const column_sums_problem& p, const void* x, void* sums, bool accumulate,
                 void* workspace, stream s) {
  with_type(p.type, [&]<class T>(T) {
    launch_sums<T>(p, run_as_it_is<T>{static_cast<const T*>(x)}, sums, accumulate, workspace, s);
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

void gelu_backward(const column_sums_problem& p, const void* hidden, void* gradient, void* sums,
                   bool accumulate, void* workspace, stream s) {
  with_type(p.type, [&]<class T>(T) {
    const run_behind_gelu<T> run{static_cast<const T*>(hidden), static_cast<T*>(gradient)};
    launch_sums<T>(p, run, sums, accumulate, workspace, s);
  });
}

}  // namespace gpt2
