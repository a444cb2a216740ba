// based_attention: the gradient of x from that of its features. (based_attention.cuh)
#pragma once

#include "kernels/based_attention/based_attention_features.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

// Of one row of x, of which four lanes have two elements each of both halves. The gradient of a
// product goes to both of its elements; to the second, it turns back.
template <class T>
class feature_contraction {
 public:
  struct pair {
    float x, y;
  };
  KITTENS_DEVICE feature_contraction(uint32_t first, uint32_t second) : low(first), high(second) {}

  // The gradients of a slice's features, of which this lane has two a group: get(group of the
  // slice) gives them.
  template <class F>
  KITTENS_DEVICE void add(int slice, F get) {
    pair turned = {0, 0};  // of the elements that have turned by as much
#pragma unroll
    for (int i = 0; i < kSlice / 8; ++i) {
      const auto [is, by] = feature_group::of(slice * (kSlice / 8) + i);
      pair d = get(i);
      if (is == kind::element) {
        // Added, though they are zeros: the product's own registers, kept this long, would be too
        // many for ptxas, which then waits for each product of the kernel.
        of_elements[by] = {of_elements[by].x + d.x, of_elements[by].y + d.y};
        continue;
      }
      if (is != kind::cross && by == kHalf / 2 && place() >= kHalf / 4) {
        if (is == kind::low && place() == 2) of_one += d.x;
        d = {0, 0};
      }
      multiply_add(of_products[is != kind::low], d, turn(is == kind::high ? high : low, by));
      multiply_add(turned, d, is == kind::low ? low : high);
      if (is == kind::low && by > 0) continue;  // the next group has turned by as much
      pair& to = of_products[is == kind::high];
      const pair back = turn_back(turned, by);
      to = {to.x + back.x, to.y + back.y};
      turned = {0, 0};
    }
  }

  // The gradient of this lane's elements of half i.
  KITTENS_DEVICE pair gradient(int i) const {
    return {of_elements[i].x + of_products[i].x, of_elements[i].y + of_products[i].y};
  }
  // This lane's part of Σ φ dφ: products are of the second degree.
  KITTENS_DEVICE float inner() const {
    float sum = of_one;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const pair at = unpacked(i == 0 ? low : high);
      sum = fmaf(at.x, of_elements[i].x + 0.5f * of_products[i].x, sum);
      sum = fmaf(at.y, of_elements[i].y + 0.5f * of_products[i].y, sum);
    }
    return sum;
  }

 private:
  const uint32_t low, high;                       // x
  pair of_elements[2] = {}, of_products[2] = {};  // of both halves
  float of_one = 0;

  KITTENS_DEVICE static pair unpacked(uint32_t word) {
    pair p;
    unpack<T>(p.x, p.y, word);
    return p;
  }
  KITTENS_DEVICE static void multiply_add(pair& sum, const pair& d, uint32_t word) {
    const pair factor = unpacked(word);
    sum = {fmaf(d.x, factor.x, sum.x), fmaf(d.y, factor.y, sum.y)};
  }
  KITTENS_DEVICE static int place() { return arch::lane_id() % 4; }

  // As in row_features, but word by word: all of them at a time would take 26 registers.
  KITTENS_DEVICE static uint32_t turn(uint32_t word, int by) {
    if (by == 0) return word;
    const int row = arch::lane_id() & ~3;
    const uint32_t first = arch::shuffle(word, row + (place() + by / 2) % 4);
    if (by % 2 == 0) return first;
    return first >> 16 | arch::shuffle(word, row + (place() + by / 2 + 1) % 4) << 16;
  }
  // What stands at f goes to (f + by) % 8.
  KITTENS_DEVICE static pair turn_back(const pair& p, int by) {
    if (by == 0) return p;
    const int from = kHalf - by, row = arch::lane_id() & ~3;
    const int first = row + (place() + from / 2) % 4, second = row + (place() + (from + 1) / 2) % 4;
    if (from % 2 == 0) return {arch::shuffle(p.x, first), arch::shuffle(p.y, first)};
    return {arch::shuffle(p.y, first), arch::shuffle(p.x, second)};
  }
};

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
