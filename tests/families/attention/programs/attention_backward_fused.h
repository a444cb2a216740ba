// The gradients of a call of attention's backward, one by one or as parts of wider rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kittens.cuh>
#include <vector>

#include "problem.h"

namespace {

template <class T>
struct gradients {
  std::vector<T> dq, dk, dv;
  std::vector<float> dsinks;
};

// What dk and dv hold beforehand, and still where no key exists.
constexpr float kStray = 7;

// Rows of dq, dk and dv behind one another, and of a few elements more that are nobody's.
template <class T>
class fused_gradients {
  static constexpr int64_t kMore = 8;

 public:
  fused_gradients(int64_t q_row, int64_t k_row, int64_t v_row)
      : widths_{q_row, k_row, v_row}, stride_(q_row + k_row + v_row + kMore) {}

  int64_t stride() const { return stride_; }
  std::vector<T> join(const gradients<T>& of) const {
    std::vector<T> rows;
    const std::vector<T>* const parts[] = {&of.dq, &of.dk, &of.dv};
    for (size_t r = 0; r < of.dq.size() / widths_[0]; ++r) {
      for (int i = 0; i < 3; ++i) {
        const auto first = parts[i]->begin() + r * widths_[i];
        rows.insert(rows.end(), first, first + widths_[i]);
      }
      rows.insert(rows.end(), kMore, kittens::convert<T>(kStray));
    }
    return rows;
  }
  gradients<T> part(const std::vector<T>& rows) const {
    gradients<T> of;
    std::vector<T>* const parts[] = {&of.dq, &of.dk, &of.dv};
    for (auto at = rows.begin(); at != rows.end();) {
      for (int i = 0; i < 3; at += widths_[i++]) {
        parts[i]->insert(parts[i]->end(), at, at + widths_[i]);
      }
      for (int64_t i = 0; i < kMore; ++i) CHECK_EQUAL(kittens::convert<float>(*at++), kStray);
    }
    return of;
  }

 private:
  int64_t widths_[3], stride_;
};

}  // namespace
