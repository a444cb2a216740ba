// hedgehog attention, one token, as hedgehog_attention_step.cuh: for heads whose rows are vectors
// of 16 bytes, which are loaded before they are needed.
//
// What a head reads, 128 KB at 128 columns, depends on nothing but the length: so a thread has its
// vectors of both maps, of the keys and of half of the state on their way at once, and those of the
// values and of the other half as soon as there are registers for them. The threads of a tensor's
// row are neighbours. What they add up for a column is added in a fixed order: of a thread's rows,
// of a warp's, of the block's.
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_step.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// Width: of heads, at most; of maps half of it.
template <class T, int Width>
struct hedgehog_vectors_config {
  using type = T;
  static constexpr int width = Width, columns = Width / 2;
  static constexpr int threads = 256, warps = threads / kWarp;
  static constexpr int min_blocks = sizeof(T) == 2 ? 2 : 1;
  static constexpr int run = 16 / int(sizeof(T)), state_run = 4;
  // Threads of a row of a cache, of a map, of the state; and how many rows a thread has.
  static constexpr int cache_lanes = Width / run, map_lanes = columns / run,
                       state_lanes = Width / state_run;
  static constexpr int cache_rows = kWindow * cache_lanes / threads,
                       map_rows = Width * map_lanes / threads,
                       state_rows = Width * state_lanes / threads;
  static constexpr int state_part = state_rows < 8 ? state_rows : 8;  // on their way at a time
  static_assert(cache_lanes <= kWarp && state_lanes <= kWarp && state_rows % state_part == 0);
};

template <class Config>
struct hedgehog_vectors_shared {
  float q[Config::width], leaving_k[Config::width], leaving_v[Config::width];
  float logits[Config::warps][2][Config::columns];  // of q and of the leaving key, in parts
  float features[2][Config::width];
  float weights[kWindow];
  float window_sum, sums[Config::warps];
  float window[Config::warps][Config::width], linear[Config::warps][Config::width];
};

template <class Config>
class hedgehog_vectors_step {
  using T = typename Config::type;
  using shared_memory = hedgehog_vectors_shared<Config>;
  static constexpr int kRun = Config::run, kStateRun = Config::state_run;
  using access = detail::run_access<T, kRun>;
  using state_access = detail::run_access<float, kStateRun>;
  using vector = lane_run<T, kRun>;

 public:
  KITTENS_DEVICE hedgehog_vectors_step(const hedgehog_step_arguments& p, shared_memory& s)
      : p(p), s(s), batch(arch::block_x() / p.heads), head(arch::block_x() % p.heads) {}

  KITTENS_DEVICE void run() {
    const int64_t length = arch::load_global(p.tensors.length + batch);
    load_rows(keys, p.tensors.k_cache, p.keys);
    load_maps();
    load_state(0);
    place = int(length % kWindow);
    leaves = length >= kWindow;
    count = leaves ? kWindow : int(length) + 1;
    if (thread() < p.keys) {
      const int64_t at = batch * p.q_strides.batch + head * p.q_strides.head + thread();
      s.q[thread()] = convert<float>(arch::load_global(static_cast<const T*>(p.tensors.q) + at));
    }
    exchange(keys, p.tensors.k_cache, p.tensors.k, p.k_strides, p.keys, s.leaving_k);
    arch::sync_block();
    multiply_by_maps();
    score();
    load_rows(values, p.tensors.v_cache, p.values);
    exchange(values, p.tensors.v_cache, p.tensors.v, p.v_strides, p.values, s.leaving_v);
    arch::sync_block();
    if (arch::warp_id() < 4) soften_features(arch::warp_id() / 2, arch::warp_id() % 2);
    if (arch::warp_id() == 4) soften_scores();
    arch::sync_block();
    add_up_window();
    update_state();
    update_sum();
    arch::sync_block();
    store_output();
  }

 private:
  const hedgehog_step_arguments& p;
  shared_memory& s;
  const int batch, head;
  int place, count;  // of the new token in the caches; tokens of the window
  bool leaves;       // whether one leaves it
  vector keys[Config::cache_rows], values[Config::cache_rows], maps[2][Config::map_rows];
  lane_run<float, kStateRun> state[Config::state_part];

  KITTENS_DEVICE static int thread() { return arch::thread_id(); }
  KITTENS_DEVICE int64_t stream() const { return int64_t{batch} * p.heads + head; }
  // The thread's row number i of a tensor of which `lanes` threads have a row, and its column.
  template <int Lanes>
  KITTENS_DEVICE static int row_of(int i) {
    return thread() / Lanes + i * (Config::threads / Lanes);
  }
  template <int Lanes, int Run>
  KITTENS_DEVICE static int column_of() {
    return thread() % Lanes * Run;
  }
  // Over the lanes of a warp that have the same columns.
  template <int Lanes, int N>
  KITTENS_DEVICE static void add_rows(float (&x)[N]) {
#pragma unroll
    for (int step = Lanes; step < kWarp; step *= 2) {
#pragma unroll
      for (float& each : x) each += arch::shuffle_xor(each, step);
    }
  }
  // What the warp's rows add up to, to shared memory.
  template <int Lanes, int N>
  KITTENS_DEVICE static void share_rows(float (&x)[N], float* to) {
    add_rows<Lanes>(x);
    if (arch::lane_id() >= Lanes) return;
#pragma unroll
    for (int k = 0; k < N; ++k) arch::store_shared(to + column_of<Lanes, N>() + k, x[k]);
  }

  KITTENS_DEVICE T* cached(void* cache, int row, int width) const {
    return static_cast<T*>(cache) + ((int64_t{batch} * kWindow + row) * p.heads + head) * width;
  }
  KITTENS_DEVICE void load_rows(vector (&rows)[Config::cache_rows], void* cache, int width) {
    const int column = column_of<Config::cache_lanes, kRun>();
#pragma unroll
    for (int i = 0; i < Config::cache_rows; ++i) {
      const int row = row_of<Config::cache_lanes>(i);
      access::load(rows[i], cached(cache, row, width) + column, column < width);
    }
  }
  // The new token's row takes the place of the one that leaves, which goes to shared memory.
  KITTENS_DEVICE void exchange(vector (&rows)[Config::cache_rows], void* cache, const void* news,
                               const hedgehog_attention_step_problem::strides& strides, int width,
                               float* leaving) {
    const int column = column_of<Config::cache_lanes, kRun>();
#pragma unroll
    for (int i = 0; i < Config::cache_rows; ++i) {
      if (row_of<Config::cache_lanes>(i) != place || column >= width) continue;
      float old[kRun];
      rows[i].get(old);
#pragma unroll
      for (int k = 0; k < kRun; ++k) arch::store_shared(leaving + column + k, old[k]);
      const int64_t at = batch * strides.batch + head * strides.head + column;
      access::load(rows[i], static_cast<const T*>(news) + at, true);
      access::store(cached(cache, place, width) + column, rows[i], true);
    }
  }

  KITTENS_DEVICE void load_maps() {
    const int column = column_of<Config::map_lanes, kRun>();
    const int64_t first = int64_t{head} * p.keys * p.columns + column;
#pragma unroll
    for (int i = 0; i < Config::map_rows; ++i) {
      const int row = row_of<Config::map_lanes>(i);
      const bool inside = row < p.keys && column < p.columns;
      const int64_t at = first + int64_t{row} * p.columns;
      access::load(maps[0][i], static_cast<const T*>(p.tensors.q_map) + at, inside);
      access::load(maps[1][i], static_cast<const T*>(p.tensors.k_map) + at, inside);
    }
  }
  KITTENS_DEVICE void multiply_by_maps() {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      const float* const x = which == 0 ? s.q : s.leaving_k;
      float sums[kRun] = {};
#pragma unroll
      for (int i = 0; i < Config::map_rows; ++i) {
        const int row = row_of<Config::map_lanes>(i);
        float weights[kRun];
        maps[which][i].get(weights);
        const float factor = row < p.keys ? arch::load_shared(x + row) : 0.0f;
#pragma unroll
        for (int k = 0; k < kRun; ++k) sums[k] = fmaf(factor, weights[k], sums[k]);
      }
      share_rows<Config::map_lanes>(sums, s.logits[arch::warp_id()][which]);
    }
  }
  // q · k / √D of the window.
  KITTENS_DEVICE void score() {
    const float scale = arch::rsqrt_approx(float(p.keys));
    const int column = column_of<Config::cache_lanes, kRun>();
#pragma unroll
    for (int i = 0; i < Config::cache_rows; ++i) {
      float k[kRun], sum = 0.0f;
      keys[i].get(k);
#pragma unroll
      for (int c = 0; c < kRun; ++c) {
        if (column < p.keys) sum = fmaf(arch::load_shared(&s.q[column + c]), k[c], sum);
      }
#pragma unroll
      for (int step = 1; step < Config::cache_lanes; step *= 2) {
        sum += arch::shuffle_xor(sum, step);
      }
      const int row = row_of<Config::cache_lanes>(i);
      if (column == 0 && row < count) arch::store_shared(&s.weights[row], sum * scale);
    }
  }

  KITTENS_DEVICE float logit(int which, int column) const {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < Config::warps; ++w) sum += arch::load_shared(&s.logits[w][which][column]);
    return sum;
  }
  // One of four softmaxes: of q or of k, of x or of −x.
  KITTENS_DEVICE void soften_features(int which, int softmax) {
    constexpr int kColumns = (Config::columns + kWarp - 1) / kWarp;  // of a lane
    const float sign = softmax == 0 ? kLog2e : -kLog2e;
    float x[kColumns], largest = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int column = arch::lane_id() + i * kWarp;
      x[i] = column < p.columns ? sign * logit(which, column) : -INFINITY;
      largest = fmaxf(largest, x[i]);
    }
    largest = reduce_lanes([](float a, float b) { return fmaxf(a, b); }, largest);
#pragma unroll
    for (float& each : x) sum += each = arch::exp2_approx(each - largest);
    sum = reduce_lanes([](float a, float b) { return a + b; }, sum);
    const float scale = arch::reciprocal_approx(sum);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int column = arch::lane_id() + i * kWarp;
      if (column >= p.columns) break;
      arch::store_shared(&s.features[which][softmax * p.columns + column], scale * x[i]);
    }
  }
  // The window's weights, beta · exp(s − max s), and their sum. One warp.
  KITTENS_DEVICE void soften_scores() {
    constexpr int kRows = kWindow / kWarp;
    const float beta = arch::load_global(p.tensors.beta + head);
    float x[kRows], largest = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = arch::lane_id() + i * kWarp;
      x[i] = row < count ? arch::load_shared(&s.weights[row]) : -INFINITY;
      largest = fmaxf(largest, x[i]);
    }
    largest = reduce_lanes([](float a, float b) { return fmaxf(a, b); }, largest);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float weight = beta * arch::exp2_approx((x[i] - largest) * kLog2e);
      sum += weight;
      arch::store_shared(&s.weights[arch::lane_id() + i * kWarp], weight);
    }
    sum = reduce_lanes([](float a, float b) { return a + b; }, sum);
    if (arch::lane_id() == 0) arch::store_shared(&s.window_sum, sum);
  }

  // Σ p(j) v(j) over the warp's rows.
  KITTENS_DEVICE void add_up_window() {
    float sums[kRun] = {};
#pragma unroll
    for (int i = 0; i < Config::cache_rows; ++i) {
      const int row = row_of<Config::cache_lanes>(i);
      float v[kRun];
      values[i].get(v);
      if (row >= count) break;  // what is in such a place is no token's, and perhaps no number
      const float weight = arch::load_shared(&s.weights[row]);
#pragma unroll
      for (int k = 0; k < kRun; ++k) sums[k] = fmaf(weight, v[k], sums[k]);
    }
    share_rows<Config::cache_lanes>(sums, s.window[arch::warp_id()]);
  }

  KITTENS_DEVICE float* state_row(int row) const {
    return p.tensors.kv_state + (stream() * 2 * p.columns + row) * p.values +
           column_of<Config::state_lanes, kStateRun>();
  }
  KITTENS_DEVICE bool has_state(int row) const {
    return row < 2 * p.columns && column_of<Config::state_lanes, kStateRun>() < p.values;
  }
  KITTENS_DEVICE void load_state(int first) {
#pragma unroll
    for (int i = 0; i < Config::state_part; ++i) {
      const int row = row_of<Config::state_lanes>(first + i);
      state_access::load(state[i], state_row(row), has_state(row));
    }
  }
  // S += φ(k) vᵀ of the token that leaves, and Sᵀ φ(q) over the warp's rows.
  KITTENS_DEVICE void update_state() {
    const int column = column_of<Config::state_lanes, kStateRun>();
    float v[kStateRun], sums[kStateRun] = {};
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) {
      v[k] = leaves && column < p.values ? arch::load_shared(&s.leaving_v[column + k]) : 0.0f;
    }
#pragma unroll 1
    for (int first = 0; first < Config::state_rows; first += Config::state_part) {
      if (first > 0) load_state(first);
#pragma unroll
      for (int i = 0; i < Config::state_part; ++i) {
        const int row = row_of<Config::state_lanes>(first + i);
        if (!has_state(row)) continue;
        const float of_q = arch::load_shared(&s.features[0][row]);
        const float of_k = leaves ? arch::load_shared(&s.features[1][row]) : 0.0f;
        float x[kStateRun];
        state[i].get(x);
#pragma unroll
        for (int k = 0; k < kStateRun; ++k) {
          x[k] = fmaf(of_k, v[k], x[k]);
          sums[k] = fmaf(of_q, x[k], sums[k]);
        }
        state[i].set(x);
        state_access::store(state_row(row), state[i], leaves);
      }
    }
    share_rows<Config::state_lanes>(sums, s.linear[arch::warp_id()]);
  }
  // z += φ(k), and z · φ(q) over the warp.
  KITTENS_DEVICE void update_sum() {
    static_assert(Config::width <= Config::threads);
    float part = 0.0f;
    if (thread() < 2 * p.columns) {
      float* const at = p.tensors.k_state + stream() * 2 * p.columns + thread();
      float z = arch::load_global(at);
      if (leaves) arch::store_global(at, z += arch::load_shared(&s.features[1][thread()]));
      part = arch::load_shared(&s.features[0][thread()]) * z;
    }
    part = reduce_lanes([](float a, float b) { return a + b; }, part);
    if (arch::lane_id() == 0) arch::store_shared(&s.sums[arch::warp_id()], part);
  }
  KITTENS_DEVICE void store_output() const {
    const int column = thread();
    if (column >= p.values) return;
    const float alpha = arch::load_global(p.tensors.alpha + head);
    float linear = 0.0f, window = 0.0f, total = 0.0f;
#pragma unroll
    for (int w = 0; w < Config::warps; ++w) {
      linear += arch::load_shared(&s.linear[w][column]);
      window += arch::load_shared(&s.window[w][column]);
      total += arch::load_shared(&s.sums[w]);
    }
    total = fmaf(alpha, total, arch::load_shared(&s.window_sum));
    const float y = fmaf(alpha, linear, window) * arch::reciprocal_approx(total);
    arch::store_global(static_cast<T*>(p.tensors.y) + stream() * p.values + column, convert<T>(y));
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    hedgehog_attention_step_vectors(const __grid_constant__ hedgehog_step_arguments p) {
  begin_dependent_grid();
  auto& s = *reinterpret_cast<hedgehog_vectors_shared<Config>*>(arch::dynamic_shared());
  hedgehog_vectors_step<Config>(p, s).run();
}

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
