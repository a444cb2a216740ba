// hedgehog attention: what a warpgroup of the backward, of either kernel, knows of its rows, their
// elements and their features. (hedgehog_attention_gradient_rows.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_generic_gradient_tile.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// Which of the two softmaxes, and blocks of a window, a warpgroup has: of the generic kernel each
// has code of its own; of Hopper's both run the same, which has room in the caches of instructions.
template <int Index>
struct known_warpgroup {
  static constexpr int W = Index;
};
struct any_warpgroup {
  const int W = warpgroupid() % 2;
};

template <class Config, class Warpgroup>
class gradient_elements : protected Warpgroup {
 public:
  KITTENS_DEVICE gradient_elements(const gradient_arguments_of<Config>& p,
                                   gradient_shared_of<Config>& shared)
      : p(p), shared(shared), run(shared.run) {}

 protected:
  using Warpgroup::W;
  using T = typename Config::type;
  using scores = rt_fl<16, kBlock>;
  using rows = scores::col_vec;   // a value for each of a warp's rows
  static constexpr int kOwn = 1;  // barriers: of each warpgroup, and of all
  static constexpr int kAll = kOwn + Config::threads / 128;
  const gradient_arguments_of<Config>& p;
  gradient_shared_of<Config>& shared;
  const block_run& run;

  KITTENS_DEVICE void meet() const { arch::named_barrier_sync(kAll, Config::threads); }
  KITTENS_DEVICE int block_of(int step) const { return run.begin + step; }
  // The half of the columns of a tile of tokens, or of a state; of the rows of a map.
  template <class Tile>
  KITTENS_DEVICE static const typename Config::square& half_of(const Tile& tile, int half) {
    static_assert(Tile::num_elements == 2 * Config::square::num_elements);
    return reinterpret_cast<const typename Config::square&>(
        tile.data[half * Config::square::num_elements]);
  }

  // ---- Values of rows ---------------------------------------------------------------------------

  // The row in its block, of this lane's elements of a half.
  KITTENS_DEVICE static int row_of(int half) {
    return arch::warp_id() % 4 * 16 + half * 8 + arch::lane_id() / 4;
  }
  KITTENS_DEVICE static float value_of(const rows& of, int half) {
    float value[1];
    of.data[half].get(value);
    return value[0];
  }
  // Value n of each row: there for both warpgroups when they have met. Where there is room for
  // less values than there are, the last one takes the place of the first, which all have read.
  static constexpr int kRowValues = gradient_shared_of<Config>::kRowValues;
  KITTENS_DEVICE void publish(int n, const rows& values) {
    if (arch::lane_id() % 4 != 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      shared.of_rows[W][n % kRowValues].data[row_of(half)] = value_of(values, half);
    }
  }
  // The sums of all lanes of a row.
  KITTENS_DEVICE void publish_sum(int n, const float (&sums)[2]) {
    rows sum;
#pragma unroll
    for (int half = 0; half < 2; ++half) sum.data[half].set({sums[half]});
    finish_row_sum(sum);
    publish(n, sum);
  }
  KITTENS_DEVICE float published(int warpgroup, int n, int half) const {
    return shared.of_rows[warpgroup][n % kRowValues].data[row_of(half)];
  }

  // ---- Where things are in global memory --------------------------------------------------------

  KITTENS_DEVICE int head() const { return run.batch * p.heads + run.head; }
  KITTENS_DEVICE int64_t part() const {
    return (int64_t{run.batch} * p.runs + run.index) * p.heads + run.head;
  }
  KITTENS_DEVICE int64_t slot_of(int b) const { return int64_t{head()} * p.blocks + b; }
  KITTENS_DEVICE float* sums_of(int b) const {
    return p.state_sums + slot_of(b) * kWidth + W * kHalf;
  }
  KITTENS_DEVICE float4* factors_of(int b) const { return p.factors + slot_of(b) * kBlock; }

  // ---- Elements ---------------------------------------------------------------------------------

  // What a state's parts are multiplied by until they are out of the products: the features of
  // queries times reciprocals would be subnormal numbers of float16.
  static constexpr float kStateScale = 16;

  // f(i, half) for each of a lane's elements of a tile of scores, or features: those of half 0 are
  // of one row, and the others of another one.
  template <class F>
  KITTENS_DEVICE static void for_each(F f) {
#pragma unroll
    for (int i = 0; i < kHalf / 2; ++i) f(i, i / 2 % 2);
  }
  // Weights and features, which are at most 1, two in a register: float16 has them to 2⁻¹¹ of what
  // they are, or 2⁻²⁵, where bfloat16 would have them to 2⁻⁸.
  using packed = rt<half, 16, kHalf>;
  KITTENS_DEVICE static float element(const scores& x, int i) { return x.data[0][i]; }
  KITTENS_DEVICE static float element(const packed& x, int i) {
    float pair[2];
    unpack<half>(pair[0], pair[1], x.data[0][i / 2]);
    return pair[i % 2];
  }
  // From here on pairs are taken apart anew: else the compiler keeps what it has taken apart
  // before, in twice as many registers.
  KITTENS_DEVICE static void stay_packed(packed& x) { arch::wgmma_hold(x.data[0]); }
  KITTENS_DEVICE static void stay_packed(scores&) {}
  // A value per column, of which a lane has 16: of its element i. Hopper's kernel leaves them in
  // shared memory.
  struct loaded_columns {
    float data[16];
    KITTENS_DEVICE float operator()(int i) const { return data[i / 4 * 2 + i % 2]; }
  };
  struct shared_columns {
    const float* first;
    KITTENS_DEVICE float operator()(int i) const { return first[i / 4 * 8 + i % 2]; }
  };
  using columns = std::conditional_t<Config::generic, loaded_columns, shared_columns>;
  // Of this warpgroup's softmax the sums of slot b; zeros where there is none.
  KITTENS_DEVICE loaded_columns load_sums(int b) const {
    loaded_columns sums = {};
    if (b >= p.blocks) return sums;
    const float* from = sums_of(b) + arch::lane_id() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 pair = arch::load_global(reinterpret_cast<const float2*>(from + 8 * i));
      sums.data[2 * i] = pair.x;
      sums.data[2 * i + 1] = pair.y;
    }
    return sums;
  }
  // … or those of the state that goes along.
  KITTENS_DEVICE shared_columns state_sums() const {
    return {shared.state_sums[W].data + arch::lane_id() % 4 * 2};
  }
  // The sums of a tile's columns, of this warp's rows: there after a barrier, for …
  KITTENS_DEVICE void add_up_columns(const logits& x) { add_up_columns(x, {1, 1}); }
  // Each row times its weight.
  KITTENS_DEVICE void add_up_columns(const logits& x, const float (&weights)[2]) {
    // Eight lanes have rows of the same eight columns of every 32, and each is left with one of
    // them: what it does not keep goes to the lane that does.
    const int lane = arch::lane_id();
    float* to = shared.of_columns[W][arch::warp_id() % 4].data;
    to += lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2;
#pragma unroll
    for (int first = 0; first < kHalf; first += kWarp) {
      float sums[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float* rows = x.data[0] + first / 2 + i / 2 * 4 + i % 2;
        sums[i] = fmaf(weights[0], rows[0], weights[1] * rows[2]);
      }
#pragma unroll
      for (int left = 4; left >= 1; left /= 2) {
        const bool keeps_last = (lane & 4 * left) != 0;
#pragma unroll
        for (int i = 0; i < left; ++i) {
          const float a = sums[i], b = sums[left + i];
          sums[i] = (keeps_last ? b : a) + arch::shuffle_xor(keeps_last ? a : b, 4 * left);
        }
      }
      to[first] = sums[0];
    }
  }
  // … all rows.
  KITTENS_DEVICE float column_sum(int column) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < 4; ++warp) sum += shared.of_columns[W][warp].data[column];
    return sum;
  }
  KITTENS_DEVICE void store_column_sums(int b) {
    const int column = warpgroup::laneid();
    if (column < kHalf) arch::store_global(sums_of(b) + column, column_sum(column));
  }
  // x, the logits, becomes the features of this warpgroup's softmax, each row by its own scale.
  KITTENS_DEVICE void soften(logits& x, const rows& scale) const {
    if constexpr (Config::generic) {
      softmax<W == 0 ? 1 : -1>(x, x, scale);
    } else {
      const float of_sign = W == 0 ? kLog2e : -kLog2e;
      rows largest, factor;
      if (W == 0) {
        row_max(largest, x);
      } else {
        row_min(largest, x);
      }
      mul(largest, largest, of_sign);
      map_rows([=](float a, float m) { return arch::exp2_approx(fmaf(a, of_sign, -m)); }, x, x,
               largest);
      row_sum(factor, x);
      map([](float a) { return arch::reciprocal_approx(a); }, factor, factor);
      mul(factor, factor, scale);
      mul_row(x, x, factor);
    }
  }
  KITTENS_DEVICE void soften(logits& x) const {
    rows one_each;
    one(one_each);
    soften(x, one_each);
  }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
