// based_attention: the features of q and k, made in registers. (based_attention.cuh)
//
// φ(x) as the kernel has it is without the scale: 1, the 16 elements of x, and their 136 products;
// what they weigh is in the state that a product with them reads (feature_column). They are 160
// columns in groups of 8, and column f of a group is a product of two elements of x that lie some
// places apart: so of a lane's pairs, as the tensor cores want them, features are one
// multiplication of two words, of which the second has turned in its half of x (feature_group).
#pragma once

#include <kittens.cuh>

#include "kernels/based_attention/based_attention.h"
#include "kittens/types/pairs.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr int kKeys = kBasedWidestKey;
inline constexpr int kHalf = kKeys / 2;  // of x, in which elements turn
inline constexpr int kColumns = 160;     // of features, as the kernel has them
inline constexpr int kGroups = kColumns / 8;

// What the columns f = 0 … 7 of a group are. The groups of a slice, which are 32 columns, have all
// the products whose second element lies `by` places behind.
struct feature_group {
  enum class kind {
    element,  // x(f), or with `by` x(8 + f)
    low,      // x(f) · x((f + by) % 8); by is at most 4, of which the columns 4 … 7 would say what
              // 0 … 3 do: 4 is 1, the others are 0
    high,     // the same of x(8 …); by 4, the columns 4 … 7 are 0
    cross,    // x(8 + f) · x((f + by) % 8)
  };
  kind is;
  int by;

  KITTENS_INLINE static constexpr feature_group of(int group) {
    if (group < 2) return {kind::element, group};
    if (group < 4) return {group == 2 ? kind::low : kind::high, 0};
    if (group < 12) return {group % 2 == 0 ? kind::low : kind::cross, group / 2 - 1};
    if (group < 16) return {kind::cross, (group - 7) % 8};
    return {kind::high, group - 15};
  }
};
inline constexpr int kSlice = 32;        // columns
inline constexpr int kOne = 10 * 8 + 4;  // the column that is 1
using kind = feature_group::kind;

// Where a product's left side, or its right side by rows, has a row of x: four lanes have two
// elements each of both halves, and two columns of each group.
struct row_lanes {
  // By two elements is by one lane; by one more, of two neighbours' words the halves between them.
  template <int Count>
  KITTENS_DEVICE static void turn(uint32_t (&turned)[Count], uint32_t word) {
    turned[0] = word;
    const int row = arch::lane_id() & ~3;
#pragma unroll
    for (int i = 2; i < Count; i += 2) {
      turned[i] = arch::shuffle(word, row + (place() + i / 2) % 4);
    }
#pragma unroll
    for (int i = 1; i < Count; i += 2) {
      turned[i] = turned[i - 1] >> 16 | turned[(i + 1) % Count] << 16;
    }
  }
  KITTENS_DEVICE static bool has_first_columns() { return place() < 2; }  // 0 … 3
  template <class T>
  KITTENS_DEVICE static uint32_t one() {  // in column 4
    return place() == 2 ? pack<T>(1, 0) : 0;
  }

 private:
  KITTENS_DEVICE static int place() { return arch::lane_id() % 4; }
};

// Where a right side has two rows of x: eight lanes have an element each of both halves, of both
// rows, and one column of each group.
struct column_lanes {
  template <int Count>
  KITTENS_DEVICE static void turn(uint32_t (&turned)[Count], uint32_t word) {
    turned[0] = word;
#pragma unroll
    for (int i = 1; i < Count; ++i) {
      turned[i] = arch::shuffle(word, (arch::lane_id() + 4 * i) % kWarp);
    }
  }
  KITTENS_DEVICE static bool has_first_columns() { return arch::lane_id() / 4 < 4; }
  template <class T>
  KITTENS_DEVICE static uint32_t one() {
    return arch::lane_id() / 4 == 4 ? pack<T>(1, 1) : 0;
  }
};

// The features of the rows of x whose elements some lanes hold, in a word of each half.
template <class T, class Lanes>
class features_of {
 public:
  KITTENS_DEVICE features_of(uint32_t first, uint32_t second) {
    Lanes::turn(low, first);
    Lanes::turn(high, second);
  }

  // This lane's columns of a group.
  KITTENS_DEVICE uint32_t group(int i) const {
    const auto [is, by] = feature_group::of(i);
    if (is == kind::element) return by == 0 ? low[0] : high[0];
    if (is == kind::cross) return multiply_pairs<T>(high[0], low[by]);
    const uint32_t product =
        is == kind::low ? multiply_pairs<T>(low[0], low[by]) : multiply_pairs<T>(high[0], high[by]);
    if (by < kHalf / 2 || Lanes::has_first_columns()) return product;
    return is == kind::low ? Lanes::template one<T>() : 0;
  }

 private:
  uint32_t low[kHalf], high[kHalf / 2 + 1];  // turned by 0, 1 …
};

// φ of 16 rows of x.
template <class T>
KITTENS_DEVICE void make_features(rt<T, 16, kColumns>& features, const rt<T, 16, kKeys>& x) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // rows 0 … 7, and 8 … 15
    const features_of<T, row_lanes> rows(x.data[0][half], x.data[0][2 + half]);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) features.data[0][2 * i + half] = rows.group(i);
  }
}
template <class T>
KITTENS_DEVICE void make_features(rt<T, 16, kColumns, ducks::rt_layout::col>& features,
                                  const rt<T, 16, kKeys, ducks::rt_layout::col>& x) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const features_of<T, column_lanes> rows(x.data[0][2 * half], x.data[0][2 * half + 1]);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) features.data[i / 2][2 * half + i % 2] = rows.group(i);
  }
}

// What a column of the features is: x(e) x(f) with e ≤ f; x(f), e = −1; 1, both −1; nothing, −2.
struct feature_column {
  int e, f;

  KITTENS_DEVICE static feature_column of(int column) {
    const auto [is, by] = feature_group::of(column / 8);
    const int at = column % 8;
    if (is == kind::element) return {-1, column};
    if (column == kOne) return {-1, -1};
    if (is != kind::cross && by == kHalf / 2 && at >= kHalf / 2) return {-2, -2};
    const int first = (is == kind::low ? 0 : kHalf) + at;
    const int turned = (is == kind::high ? kHalf : 0) + (at + by) % kHalf;
    return {first < turned ? first : turned, first < turned ? turned : first};
  }

  // Its row of the op's states, of `keys` elements; −1 where it has none.
  KITTENS_DEVICE int row(int keys) const {
    if (e == -2 || f >= keys) return -1;
    if (e == -1) return f + 1;
    return 1 + keys + e * keys - e * (e - 1) / 2 + (f - e);
  }
};

// In q's features times k's a column weighs scale if it is an element, scale²/2 if it is the square
// of one, scale² if it is the product of two, and 1 if it is 1. In each of them, and in the op's
// states, it is the root of that: the roots, or one over them.
struct feature_roots {
  float element, square, product;

  KITTENS_DEVICE static feature_roots of(float scale) {
    return {sqrtf(scale), sqrtf(0.5f * scale * scale), sqrtf(scale * scale)};
  }
  KITTENS_DEVICE feature_roots inverse() const { return {1 / element, 1 / square, 1 / product}; }
  KITTENS_DEVICE float of_column(const feature_column& column) const {
    if (column.e < 0) return column.f < 0 ? 1 : element;
    return column.e == column.f ? square : product;
  }
};

// The weight of column 8·group + …, where the group says it: of all columns but kOne.
KITTENS_DEVICE float weight_of_group(int group, float scale) {
  const auto [is, by] = feature_group::of(group);
  if (is == kind::element) return scale;
  return is != kind::cross && by == 0 ? 0.5f * scale * scale : scale * scale;
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
