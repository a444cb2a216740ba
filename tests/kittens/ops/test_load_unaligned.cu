// ops/load_store.cuh: load_unaligned, of rows that start at every element, among NaNs.
#include <cmath>

#include "vectors.h"

using namespace kittens;
using testing::buffer;
using testing::exact_value;
using testing::run;

namespace {

template <class V, class T>
__global__ void load_to(gl<const T> in, gl<float> out, coord at) {
  V v;
  load_unaligned(v, in, at);
  store(out, v);
}

// Two rows, the first at element `offset`, in a buffer that ends where nothing is read any more.
template <class V, class T>
void check_rows(int64_t offset, int64_t cols, int64_t stride) {
  const int64_t start = offset + stride, aligned = start - start % V::run_length;  // of the second
  std::vector<T> values(aligned + cols + V::run_length, convert<T>(std::nanf("")));
  for (const int64_t row : {offset, start}) {
    for (int64_t i = 0; i < cols; ++i) values[row + i] = convert<T>(exact_value(row + i));
  }
  const buffer<T> in(values);
  const buffer<float> out(static_cast<size_t>(V::length));
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t c = 0; c * V::length <= cols; ++c) {
      run(load_to<V, T>, {.grid = {1}, .block = {32}},
          gl<const T>::matrix(in.data() + offset, 2, cols, stride),
          gl<float>::vector(out.data(), V::length), {.r = r, .c = c});
      const std::vector<float> got = out.get();
      for (int64_t i = 0; i < V::length; ++i) {
        const int64_t column = c * V::length + i;
        const float want = exact_value(offset + r * stride + column);
        CHECK_EQUAL(got[i], column < cols ? want : 0.0f);
      }
    }
  }
}

template <class T, int Run, int Length>
void check_runs() {
  using vector = rv<float, Length, ducks::rv_layout::runs<Run>>;
  for (int offset = 0; offset < Run; ++offset) {
    for (const int cols : {0, 1, 5, 31, 32, 33, 70}) {
      check_rows<vector, T>(offset, cols * Run, cols * Run + 3);
    }
  }
}

TEST(rows_start_at_any_element) {
  check_runs<bf16, 8, 512>();
  check_runs<half, 8, 256>();
  check_runs<float, 4, 256>();
}

TEST(runs_of_fewer_bytes) {
  check_runs<bf16, 2, 64>();
  check_runs<half, 4, 128>();
  check_runs<float, 2, 128>();
  check_runs<float, 1, 64>();
}

}  // namespace
