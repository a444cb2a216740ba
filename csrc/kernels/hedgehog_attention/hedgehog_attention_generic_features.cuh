// hedgehog attention on every architecture: features, of which a warp has a slice.
// (hedgehog_attention_generic.cuh)
#pragma once

#include "kernels/hedgehog_attention/hedgehog_attention_generic_tile.cuh"

namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET {

// Of four lanes that have a row of a tile.
KITTENS_DEVICE float row_maximum(float x) {
  x = fmaxf(x, arch::shuffle_xor(x, 1));
  return fmaxf(x, arch::shuffle_xor(x, 2));
}
KITTENS_DEVICE float row_total(float x) {
  x += arch::shuffle_xor(x, 1);
  return x + arch::shuffle_xor(x, 2);
}

// 16 columns of a map, and the logits of some rows in them. A row's softmaxes are over four slices,
// whose warps tell each other the largest logit and the sum of exponentials relative to it.
template <class T, int Rows>
class feature_slice {
 public:
  static constexpr int kColumns = 16, kLines = Rows / 16;
  static constexpr int kRowsOfLane = 2 * kLines;

  KITTENS_DEVICE void load(const st<T, kWidth, kHalf>& map, int first_column) {
    column = first_column;
    const int lane = arch::lane_id();
#pragma unroll
    for (int k = 0; k < kWidth / 16; ++k) {
      arch::load_matrix<true>(columns[k], &map(16 * k + lane % 16, column + lane / 16 * 8));
    }
  }

  // The logits of a tile's rows from `first` on, and what is left of them for the other slices.
  KITTENS_DEVICE void multiply(const st<T, kBlock, kWidth>& tile, int first, slice_parts& parts) {
    zero(x);
#pragma unroll
    for (int k = 0; k < kWidth / 16; ++k) {
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        uint32_t left[4];
        load_left<false>(left, tile, first + 16 * line, 16 * k);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float sums[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i] = x.data[line][4 * half + i];
          arch::mma_m16n8k16<T>(sums, left, {columns[k][2 * half], columns[k][2 * half + 1]}, sums);
#pragma unroll
          for (int i = 0; i < 4; ++i) x.data[line][4 * half + i] = sums[i];
        }
      }
    }
    leave_parts<1>(first, parts);
    leave_parts<-1>(first, parts);
  }

  // The features, each row's times scale(i), i its number among this lane's: into the tile, and to
  // f(i, a softmax's four of the row), once all slices' parts are there.
  template <class Scale, class F>
  KITTENS_DEVICE void store(st<T, kBlock, kWidth>& tile, int first, const slice_parts& parts,
                            Scale scale, F f) const {
    store_softmax<1>(tile, first, parts, scale, f);
    store_softmax<-1>(tile, first, parts, scale, f);
  }

  // This lane's row number i, of those from `first` on; and its first column.
  KITTENS_DEVICE static int row(int first, int i) { return first + 8 * i + arch::lane_id() / 4; }
  KITTENS_DEVICE int first_column() const { return column + arch::lane_id() % 4 * 2; }

 private:
  uint32_t columns[kWidth / 16][4];  // of the map, as a product's right side
  rt_fl<Rows, kColumns> x;
  int column;

  // Of row i the lane's element j: columns 0, 1, 8 and 9 from its first one on.
  KITTENS_DEVICE float logit(int i, int j) const {
    return x.data[i / 2][j / 2 * 4 + i % 2 * 2 + j % 2];
  }
  template <int Sign>
  KITTENS_DEVICE void leave_parts(int first, slice_parts& parts) const {
    constexpr float kScale = Sign * kLog2e;
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      float largest = -INFINITY, sum = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) largest = fmaxf(largest, kScale * logit(i, j));
      largest = row_maximum(largest);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum += arch::exp2_approx(fmaf(logit(i, j), kScale, -largest));
      sum = row_total(sum);
      if (arch::lane_id() % 4 != 0) continue;
      parts[Sign == 1 ? 0 : 1][row(first, i)][column / kColumns] = {largest, sum};
    }
  }
  template <int Sign, class Scale, class F>
  KITTENS_DEVICE void store_softmax(st<T, kBlock, kWidth>& tile, int first,
                                    const slice_parts& parts, Scale scale, F f) const {
    constexpr float kScale = Sign * kLog2e;
    constexpr int kSoftmax = Sign == 1 ? 0 : 1;
    rt<T, Rows, kColumns> features;
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      // Of a row's four lanes each adds up a slice.
      const softmax_part part = parts[kSoftmax][row(first, i)][arch::lane_id() % 4];
      const float largest = row_maximum(part.largest);
      const float sum = row_total(part.sum * arch::exp2_approx(part.largest - largest));
      const float factor = scale(i) / sum;
      float of_row[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        of_row[j] = factor * arch::exp2_approx(fmaf(logit(i, j), kScale, -largest));
      }
      features.set(i / 2, 0, i % 2, of_row[0], of_row[1]);
      features.set(i / 2, 0, i % 2 + 2, of_row[2], of_row[3]);
      f(i, kSoftmax, of_row);
    }
    store_columns(tile, features, first, kSoftmax * kHalf + column);
  }
};

// Σ over the tokens of φ(k). A thread has two columns, of every fourth 16 rows.
template <class T>
class generic_sums {
 public:
  KITTENS_DEVICE void add(const float* sums) {
    if (part() != 0) return;
    x += arch::load_global(sums + column());
    y += arch::load_global(sums + column() + 1);
  }
  KITTENS_DEVICE void add(const st<T, kBlock, kWidth>& features) {
#pragma unroll
    for (int i = 0; i < kBlock / 4; ++i) {
      float a, b;
      unpack<T>(a, b,
                arch::load_shared(reinterpret_cast<const uint32_t*>(
                    &features(part() * (kBlock / 4) + i, column()))));
      x += a;
      y += b;
    }
  }
  KITTENS_DEVICE void publish(sv<float, kWidth> (&sums)[4]) const {
    sums[part()].data[column()] = x;
    sums[part()].data[column() + 1] = y;
  }

 private:
  float x = 0, y = 0;

  KITTENS_DEVICE static int part() { return arch::thread_id() / (kWidth / 2); }
  KITTENS_DEVICE static int column() { return arch::thread_id() % (kWidth / 2) * 2; }
};

}  // namespace thunderkittens::hedgehog_attention_kernels::inline KITTENS_TARGET
