// mamba2: the gradients of dt, A and dt_bias, from those of the two uses of dt': as a weight, w,
// and in dt' A, the logarithm of the decay, g.
//
//   d(dt)(t) = [dt_min ≤ softplus(raw(t)) ≤ dt_max] (dw(t) + A dg(t)) σ(raw(t))
//
//   d(dt_bias) = Σ(t) d(dt)(t)
//
//   dA = Σ(t) dt'(t) dg(t)
//
// raw is dt + dt_bias. Without softplus its derivative σ is 1. A block has a tile of 256 tokens and
// 8 heads, so that it reads and writes whole sectors, and a thread 8 tokens of one of them; the
// sums over a tile's tokens are left to be added up.
#pragma once

#include "kernels/mamba2/mamba2_gates.cuh"

namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET {

// T: of dt. Parts: numbers of a token and head whose sum is dw.
template <class T, int Parts>
struct mamba2_gate_gradients_config {
  using type = T;
  static constexpr int parts = Parts;
  static constexpr int threads = 256, warps = threads / kWarp;
  static constexpr int min_blocks = 2;  // 128 registers: with fewer the loads of a run wait
  static constexpr int heads = 8, runs = threads / heads;             // of a block; of its tokens
  static constexpr int tile = kMamba2GateTile, tokens = tile / runs;  // … of a run
};

template <class Config>
struct mamba2_gate_gradients_shared {
  float d_a[Config::warps][Config::heads], d_bias[Config::warps][Config::heads];
};

// 1 / (1 + e⁻ˣ).
KITTENS_DEVICE float sigmoid(float x) {
  return arch::reciprocal_approx(1 + arch::exp2_approx(-x * kLog2e));
}

// The derivative of dt' by dt with its bias; NaN where that is, and softplus of it.
KITTENS_DEVICE float derivative_of_gate(const mamba2_gate_gradients_params& p, float raw) {
  const float before = p.softplus ? softplus(raw) : raw;
  // Beyond its limits dt' is constant.
  const float passes = before >= p.dt_min && before <= p.dt_max ? 1.0f : 0.0f;
  return p.softplus ? passes * sigmoid(raw) : passes;
}

// What a thread works on: tokens `first` … of a head, of which `count` are there.
template <class Config>
struct gate_run {
  using T = typename Config::type;
  int batch, tile, head, tiles;
  int first, count;
  float d_decay[Config::tokens], d_weight[Config::tokens][Config::parts], step[Config::tokens];
  T dt[Config::tokens];
  float d_a = 0, d_bias = 0;  // sums

  KITTENS_DEVICE explicit gate_run(const mamba2_gate_gradients_params& p) {
    const int all_heads = static_cast<int>(p.heads), length = static_cast<int>(p.length);
    const int groups = (all_heads + Config::heads - 1) / Config::heads;
    tiles = (length + Config::tile - 1) / Config::tile;
    const int of_group = arch::block_x() / groups, thread = arch::thread_id();
    batch = of_group / tiles;
    tile = of_group % tiles;
    head = arch::block_x() % groups * Config::heads + thread % Config::heads;
    first = tile * Config::tile + thread / Config::heads * Config::tokens;
    count = head < all_heads ? length - first : 0;
  }

  // Which of [B, S, H] is a token's.
  KITTENS_DEVICE int64_t place(const mamba2_gate_gradients_params& p, int token) const {
    return (batch * p.length + token) * p.heads + head;
  }
  // Number i of the run's tokens; or its first, in whose place one is read that is not there:
  // without a branch, behind which the next one's loads would wait.
  KITTENS_DEVICE int token(int i) const { return first + (i < count ? i : 0); }

  KITTENS_DEVICE void load(const mamba2_gate_gradients_params& p) {
    const T* const from =
        static_cast<const T*>(p.dt) + batch * p.dt_strides.batch + head * p.dt_strides.head;
    const float* const steps_from = p.steps + (batch * p.heads + head) * p.length;
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      const int64_t at = place(p, token(i));
      d_decay[i] = arch::load_global(p.d_log_decay + at);
#pragma unroll
      for (int part = 0; part < Config::parts; ++part) {
        d_weight[i][part] = arch::load_global(p.d_weights + at * Config::parts + part);
      }
      step[i] = arch::load_global(steps_from + token(i));
      dt[i] = arch::load_global(from + token(i) * p.dt_strides.token);
    }
  }

  KITTENS_DEVICE void compute(const mamba2_gate_gradients_params& p) {
    if (count <= 0) return;
    load(p);
    const token_range there = tokens_of_sequences(p);
    const float a = arch::load_global(p.a + head);
    const float bias = p.dt_bias == nullptr ? 0.0f : arch::load_global(p.dt_bias + head);
#pragma unroll
    for (int i = 0; i < Config::tokens; ++i) {
      if (i >= count) break;
      float d_dt = 0;
      if (there.has(first + i)) {
        float sum = d_weight[i][0];
#pragma unroll
        for (int part = 1; part < Config::parts; ++part) sum += d_weight[i][part];
        d_a += d_decay[i] * step[i];
        d_dt = (sum + d_decay[i] * a) * derivative_of_gate(p, convert<float>(dt[i]) + bias);
      }
      d_bias += d_dt;
      if (p.d_dt != nullptr) {
        arch::store_global(static_cast<T*>(p.d_dt) + place(p, first + i), convert<T>(d_dt));
      }
    }
  }
};

// Grid: batch · tiles · (heads / 8, rounded up).
template <class Config>
__global__ void __launch_bounds__(Config::threads,
                                  arch::min_blocks<Config::threads, Config::min_blocks>)
    mamba2_gate_gradients(const __grid_constant__ mamba2_gate_gradients_params p) {
  begin_dependent_grid();
  auto& shared = *reinterpret_cast<mamba2_gate_gradients_shared<Config>*>(arch::dynamic_shared());
  gate_run<Config> run(p);
  run.compute(p);
#pragma unroll
  for (int lanes = Config::heads; lanes < kWarp; lanes *= 2) {
    run.d_a += arch::shuffle_xor(run.d_a, lanes);
    run.d_bias += arch::shuffle_xor(run.d_bias, lanes);
  }
  const int lane = arch::lane_id(), warp = arch::warp_id();
  if (lane < Config::heads) {
    arch::store_shared(&shared.d_a[warp][lane], run.d_a);
    arch::store_shared(&shared.d_bias[warp][lane], run.d_bias);
  }
  arch::sync_block();
  if (arch::thread_id() >= Config::heads || run.head >= p.heads) return;
  float d_a = 0, d_bias = 0;
#pragma unroll
  for (int w = 0; w < Config::warps; ++w) {
    d_a += arch::load_shared(&shared.d_a[w][lane]);
    d_bias += arch::load_shared(&shared.d_bias[w][lane]);
  }
  const int64_t place = (int64_t{run.batch} * run.tiles + run.tile) * p.heads + run.head;
  if (p.d_a != nullptr) arch::store_global(p.d_a + place, d_a);
  if (p.d_bias != nullptr) arch::store_global(p.d_bias + place, d_bias);
}

}  // namespace thunderkittens::mamba2_kernels::inline KITTENS_TARGET
