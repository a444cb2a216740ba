// AdamW, element by element: every tensor is read or written once, and the kernel is as fast as
// memory. The formula is that of thunderkittens/kernels/adamw.h, in float32; each result is rounded
// once.
//
// Blocks take the chunks of all tensors of the launch, one or several each. A thread loads all that
// it needs of a chunk before it computes. The block that ends last counts the step.
#pragma once

#include <cfloat>
#include <cmath>

#include "kernels/adamw/adamw_table.cuh"
#include "kernels/adamw/stochastic_rounding.cuh"

namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET {

// P: element type of parameters and gradients. M: of the moments. Master: whether float32 weights
// are the parameters, and P's their roundings.
template <class P, class M, bool Master>
struct adamw_config {
  using parameter = P;
  using moment = M;
  using weight = std::conditional_t<Master, float, P>;  // what is updated
  static constexpr bool master = Master;
  // Elements of an access: 16 bytes of the widest.
  static constexpr int run = sizeof(weight) == 4 || sizeof(M) == 4 ? 4 : 8;
  static constexpr int threads = kAdamwThreads;
  // 64 registers a thread: a multiprocessor has 128 KB on their way.
  static constexpr int min_blocks = 4;
};

// What all elements of a tensor have in common in this step.
struct adamw_step {
  float beta2, rest1, rest2, eps, weight_decay;
  float lr;
  float grad_factor;  // of clipping and maximize
  float correction1;  // 1 / (1 − β1^t)
  float correction2;  // 1 / √(1 − β2^t)
  rounding_numbers numbers;
  bool stochastic;

  KITTENS_DEVICE adamw_step(const adamw_update_params& p, float norm, const adamw_chunk& c)
      : beta2(p.beta2),
        rest1(p.rest1),
        rest2(p.rest2),
        eps(p.eps),
        weight_decay(p.weight_decay),
        lr(p.lr != nullptr ? arch::load_global(p.lr) : p.lr_value),
        grad_factor(p.sign),
        stochastic(p.stochastic_rounding) {
    const float* step = c.tensor.step;
    const float t = step != nullptr ? arch::load_global(step) + 1 : p.step;
    correction1 = -1 / expm1f(t * p.log_beta1);
    correction2 = sqrtf(-1 / expm1f(t * p.log_beta2));
    numbers = {p.seed, uint32_t(t), c.tensor.number};
    if (p.norm != nullptr && p.max_norm <= FLT_MAX) {
      const float clip = p.max_norm / (norm + 1e-6f);
      grad_factor *= clip > 1 ? 1.0f : clip;  // NaN stays NaN
    }
  }

  // One element: weight and moments become the new ones.
  KITTENS_DEVICE void update(float& weight, float& m, float& v, float grad) const {
    const float g = grad * grad_factor;
    m = arch::fma(rest1, g - m, m);
    v = arch::fma(rest2 * g, g, beta2 * v);
    const float root = arch::fma(sqrtf(v), correction2, eps);
    const float direction = m * correction1 * arch::reciprocal_approx(root);
    weight = arch::fma(-lr, arch::fma(weight_decay, weight, direction), weight);
  }
};

// The values of a run as T has them, for numbers drawn at random: the lower half of the words, or
// after `shift` the upper one.
template <class T, int N>
KITTENS_DEVICE void round_run(float (&values)[N], const uint32_t (&words)[N], int shift) {
  if constexpr (std::same_as<T, bf16>) {
#pragma unroll
    for (int e = 0; e < N; ++e) values[e] = round_stochastically(values[e], words[e] >> shift);
  }
}

// A thread's runs of one chunk.
template <class Config, int N>
struct adamw_runs {
  using P = typename Config::parameter;
  using M = typename Config::moment;
  using W = typename Config::weight;
  static constexpr int kRuns = kElements / N < 2 ? kElements / N : 2;  // on their way at a time
  static constexpr int kPass = kRuns * kAdamwThreads * N;
  static constexpr bool kRounds = std::same_as<W, bf16> || std::same_as<M, bf16>;

  lane_run<P, N> grad[kRuns];
  lane_run<M, N> exp_avg[kRuns], exp_avg_sq[kRuns];
  lane_run<W, N> weight[kRuns];

  template <class T>
  KITTENS_DEVICE static T* at(void* data, int64_t index) {
    return static_cast<T*>(data) + index;
  }
  KITTENS_DEVICE static W* weights(const adamw_entry& t) {
    if constexpr (Config::master) {
      return t.master;
    } else {
      return static_cast<W*>(t.param);
    }
  }

  // first, end: in the chunk, of this pass.
  KITTENS_DEVICE void load(const adamw_chunk& c, int first, int end) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int in_chunk = first + (i * kAdamwThreads + arch::thread_id()) * N;
      const int64_t index = c.start + in_chunk;
      const bool inside = in_chunk < end;
      const auto* grads = static_cast<const P*>(c.tensor.grad);
      detail::run_access<P, N>::load(grad[i], grads + index, inside);
      detail::run_access<W, N>::load(weight[i], weights(c.tensor) + index, inside);
      detail::run_access<M, N>::load(exp_avg[i], at<M>(c.tensor.exp_avg, index), inside);
      detail::run_access<M, N>::load(exp_avg_sq[i], at<M>(c.tensor.exp_avg_sq, index), inside);
    }
  }

  KITTENS_DEVICE void update(const adamw_step& s, const adamw_chunk& c, int first, int end) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int in_chunk = first + (i * kAdamwThreads + arch::thread_id()) * N;
      if (in_chunk < end) update_run(s, c.tensor, c.start + in_chunk, i);
    }
  }

 private:
  KITTENS_DEVICE void update_run(const adamw_step& s, const adamw_entry& t, int64_t index,
                                 int i) const {
    float g[N], m[N], v[N], w[N];
    grad[i].get(g);
    exp_avg[i].get(m);
    exp_avg_sq[i].get(v);
    weight[i].get(w);
#pragma unroll
    for (int e = 0; e < N; ++e) s.update(w[e], m[e], v[e], g[e]);
    if constexpr (kRounds) {
      if (s.stochastic) {
        uint32_t words[N];
        s.numbers.get(words, index, 0);
        round_run<W>(w, words, 0);
        round_run<M>(m, words, 16);
        if constexpr (std::same_as<M, bf16>) {
          s.numbers.get(words, index, 1);
          round_run<M>(v, words, 0);
        }
      }
    }
    store(at<M>(t.exp_avg, index), m);
    store(at<M>(t.exp_avg_sq, index), v);
    store(weights(t) + index, w);
    if constexpr (Config::master) store(at<P>(t.param, index), w);
  }

  template <class T>
  KITTENS_DEVICE static void store(T* to, const float (&values)[N]) {
    lane_run<T, N> run;
    run.set(values);
    detail::run_access<T, N>::store(to, run);
  }
};

template <class Config>
KITTENS_DEVICE void update_chunk(const adamw_update_params& p, float norm, const adamw_chunk& c) {
  for_each_part<Config::run>(c, [&]<int N>(int first, int end) {
    using runs = adamw_runs<Config, N>;
    for (int pass = first; pass < end; pass += runs::kPass) {
      runs r;
      r.load(c, pass, end);
      const adamw_step step(p, norm, c);
      r.update(step, c, pass, end);
    }
  });
}

// By the block that ends last: all others have read the steps.
KITTENS_DEVICE void count_step(const adamw_update_params& p, bool skipped) {
  if (skipped) {
    if (p.skipped == nullptr || arch::lane_id() != 0) return;
    arch::store_global(p.skipped, arch::load_global(p.skipped) + 1);
    return;
  }
  for (int i = arch::lane_id(); i < p.table.tensors; i += kWarp) {
    float* step = p.table.entries[i].step;
    if (step != nullptr) arch::store_global(step, arch::load_global(step) + 1);
  }
}

// Grid: as many blocks as fit at once, or as there are chunks. The last chunk is the first: its
// gradients are what the norm has read last, and may still be in the L2.
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    adamw_update(const __grid_constant__ adamw_update_params p) {
  begin_dependent_grid();
  const float norm = p.norm != nullptr ? arch::load_global(p.norm) : 0.0f;
  const bool skipped = p.skip_nonfinite && !(norm <= FLT_MAX);
  for (int chunk = arch::block_x(); chunk < p.table.chunks && !skipped; chunk += arch::grid_x()) {
    update_chunk<Config>(p, norm, {p.table, p.table.chunks - 1 - chunk});
  }
  arch::sync_block();
  if (arch::warp_id() == 0 && ends_last(p.counter)) count_step(p, skipped);
}

}  // namespace thunderkittens::adamw_kernels::inline KITTENS_TARGET
