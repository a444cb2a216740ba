// quantized_linear for every architecture since sm_80, by cp.async and mma.sync: linear of a weight
// of 8 or 4 bits a number (linear_weights.cuh), of the same groups, steps and sums
// (linear_pass.cuh).
//
// What limits it are instructions, not memory: the numbers have to become factors. So
//
//   yᵀ = W xᵀ   the weight is the left side, and of up to 8 rows of x a product has 8, not 16
//   sums        of int4, whose groups are whole steps, are scaled, not numbers: sums of n · x, for
//               which n needs one instruction or two, and of x
//
// A lane's part of a step are 16 bytes of each of some rows of the weight, and of x the same
// columns (quantized_linear_feed.cuh). Which columns of a product of 16 these are is free, as long
// as x and the weight agree. So each lane loads what it multiplies itself: no lane waits for
// another but at the end of a pass, nothing is swizzled or rearranged, and no access of the weight
// has a bank conflict. A warp's load takes 64 bytes of each of 8 rows.
//
// Tiles of a pass, warps and stages: linear_forms.cuh.
#pragma once

#include "kernels/linear/quantized_linear_feed.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

// The sums of one warp in a pass: a lane has those of its two rows of each tile, and two rows of
// each eight of x.
template <class Config>
struct quantized_sums {
  using T = typename Config::type;
  using weight = typename Config::weight;
  using x_rows = rt<T, kRows, Config::step>;
  static constexpr int row_halves = Config::row_halves;
  static constexpr int kProducts = Config::lane_cols / 4;  // of a step, 16 columns each
  using sums = float[row_halves][4];

  sums of_tile[Config::tiles];

  KITTENS_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < Config::tiles; ++i) clear(of_tile[i]);
  }
  // Two tiles at a time: the second is zeros where it is not asked for.
  template <class Factors>
  KITTENS_DEVICE void add(Factors& factors, int tiles) {
    if constexpr (weight::kRowScaled) order(factors.x);
    sums of_x;
    clear(of_x);
#pragma unroll
    for (int first = 0; first < Config::tiles; first += 2) {
      if (first >= tiles) break;
      const auto* const weights = &factors.weight[first];
      if constexpr (weight::kScalesSums) {
        sums of_step[2];
        clear(of_step[0]);
        clear(of_step[1]);
        multiply(of_step, weights, factors.x, first == 0 ? &of_x : nullptr);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          add_scaled(of_tile[first + i], weights[i].scale, of_step[i], of_x);
        }
      } else {
        multiply(&of_tile[first], weights, factors.x, nullptr);
      }
    }
  }
  KITTENS_DEVICE void share(typename Config::sum_tile (&to)[Config::tiles], int tiles) const {
    const int feature = arch::lane_id() / 4, row = arch::lane_id() % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < Config::tiles; ++tile) {
      if (tile >= tiles) break;
#pragma unroll
      for (int half = 0; half < row_halves; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          arch::store_shared(&to[tile](8 * half + row + i % 2, feature + i / 2 * 8),
                             of_tile[tile][half][i]);
        }
      }
    }
  }

 private:
  KITTENS_DEVICE static void clear(sums& all) {
#pragma unroll
    for (auto& half : all) {
#pragma unroll
      for (float& sum : half) sum = 0.0f;
    }
  }
  // As pairs of the weight have it.
  KITTENS_DEVICE static void order(x_rows& x) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
#pragma unroll
      for (int half = 0; half < row_halves; ++half) {
        weight::order(x.data[0][4 * i + half], x.data[0][4 * i + 2 + half]);
      }
    }
  }
  // A product of 16 columns, number i of a step.
  KITTENS_DEVICE static void multiply_16(sums& to, const uint32_t (&left)[4], const x_rows& x,
                                         int i) {
#pragma unroll
    for (int half = 0; half < row_halves; ++half) {
      const uint32_t right[2] = {x.data[0][4 * i + half], x.data[0][4 * i + 2 + half]};
      arch::mma_m16n8k16<T>(to[half], left, right, to[half]);
    }
  }
  // Of two tiles, word by word: their products, which do not wait for each other, alternate.
  // `of_x`: where there is such, of each row of x the sum of the step's columns, a product with
  // ones.
  KITTENS_DEVICE static void multiply(sums* to, const quantized_factor<weight>* weights,
                                      const x_rows& x, sums* of_x) {
    constexpr int kPairs = Config::lane_cols / 8;  // of a word
    constexpr uint32_t kOnes = std::same_as<T, bf16> ? 0x3f803f80 : 0x3c003c00;
    constexpr uint32_t kOfX[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
#pragma unroll
      for (int i = 0; i < kPairs / 2; ++i) {
        if (of_x != nullptr) multiply_16(*of_x, kOfX, x, word * kPairs / 2 + i);
      }
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        uint32_t pairs[2][kPairs];
        weight::convert(pairs[0], weights[tile].bytes[0], word, weights[tile].scale[0]);
        weight::convert(pairs[1], weights[tile].bytes[1], word, weights[tile].scale[1]);
#pragma unroll
        for (int i = 0; i < kPairs; i += 2) {
          const uint32_t left[4] = {pairs[0][i], pairs[1][i], pairs[0][i + 1], pairs[1][i + 1]};
          multiply_16(to[tile], left, x, (word * kPairs + i) / 2);
        }
      }
    }
  }
  // Factors are 2^k + n: the scale times (Σ (2^k + n) x − (2^k + zero) Σ x).
  KITTENS_DEVICE static void add_scaled(sums& to, const typename weight::scale (&scale)[2],
                                        const sums& of_step, const sums& of_x) {
#pragma unroll
    for (int half = 0; half < row_halves; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = fmaf(-scale[i / 2].zero(), of_x[half][i % 2], of_step[half][i]);
        to[half][i] = fmaf(scale[i / 2].factor(), sum, to[half][i]);
      }
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::warps* kWarp,
                                  arch::min_blocks<Config::warps * kWarp, Config::form.blocks>)
    quantized_linear(const __grid_constant__ quantized_linear_arguments p) {
  if constexpr (!Config::weight_is_constant) begin_dependent_grid();
  auto& shared = *reinterpret_cast<quantized_linear_shared<Config>*>(arch::dynamic_shared());
  const auto mine = block_groups<Config>::of(p);
  quantized_feed<Config> feed(shared, p, mine);
  multiply_groups<quantized_sums<Config>>(shared.sums, p, mine, feed);
}

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
