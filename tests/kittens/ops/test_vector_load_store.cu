// ops/global/vector_load_store.cuh: global memory, shared vectors and registers, with ragged ends
// and strides.
#include <cstring>

#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::exact_value;
using testing::run;

namespace {

constexpr int kLength = 256;

// Moves slice `at` of `in` through a vector V to `out`.
template <class V, bool EvictLast, class In, class Out>
__global__ void copy_slice(gl<const In> in, gl<Out> out, coord at) {
  V v;
  if constexpr (EvictLast) {
    load_evict_last(v, in, at);
  } else {
    load(v, in, at);
  }
  store(out, v, at);
}

template <class V, class In, class Out, bool EvictLast = false>
void check_copy(int64_t rows, int64_t cols, int64_t stride) {
  const buffer<In> in(testing::exact_values<In>(rows * stride));
  const buffer<Out> out(static_cast<size_t>(rows * stride));
  const std::vector<Out> poison = out.get();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c * V::length < cols; ++c) {
      run(copy_slice<V, EvictLast, In, Out>, {.grid = {1}, .block = {32}},
          gl<const In>::matrix(in.data(), rows, cols, stride),
          gl<Out>::matrix(out.data(), rows, cols, stride), {.r = r, .c = c});
    }
  }
  const std::vector<Out> got = out.get();
  for (int64_t i = 0; i < rows * stride; ++i) {
    if (i % stride < cols) {
      CHECK_EQUAL(convert<float>(got[i]), exact_value(i));
    } else {
      CHECK(std::memcmp(static_cast<const void*>(&got[i]), &poison[i], sizeof(Out)) == 0);
    }
  }
}

TEST(every_layout_copies_whole_and_ragged_rows) {
  testing::for_each_vector<kLength>([&]<class V>() {
    using T = typename V::dtype;
    for (const int64_t runs : {1, 3, 31, 32, 33, 64, 100}) {
      check_copy<V, T, T>(2, runs * V::run_length, (runs + 2) * V::run_length);
    }
  });
}

TEST(rows_that_are_kept_are_the_same_rows) {
  using runs8 = rv<bf16, kLength, ducks::rv_layout::runs<8>>;
  using runs2 = rv<float, kLength, ducks::rv_layout::runs<2>>;
  for (const int64_t runs : {1, 31, 32, 33, 100}) {
    check_copy<runs8, bf16, bf16, true>(2, 8 * runs, 8 * (runs + 2));
    check_copy<runs2, float, float, true>(2, 2 * runs, 2 * (runs + 2));
    check_copy<rv<float, kLength>, float, bf16, true>(2, runs, runs + 1);
  }
}

// Rows of as many columns as the compiler knows: of the vector's length, and of fewer.
template <class V, bool EvictLast, int64_t Cols>
__global__ void copy_known(gl<const typename V::dtype, 1, 1, kDynamic, Cols> in,
                           gl<typename V::dtype, 1, 1, kDynamic, Cols> out) {
  V v;
  const coord at{.r = arch::block_x()};
  if constexpr (EvictLast) {
    load_evict_last(v, in, at);
  } else {
    load(v, in, at);
  }
  store(out, v, at);
}

template <class V, int64_t Cols, bool EvictLast = false>
void check_known() {
  using T = typename V::dtype;
  constexpr int kRows = 2, kStride = V::length + V::run_length;
  const buffer<T> in(testing::exact_values<T>(kRows * kStride)), out(size_t{kRows * kStride});
  const std::vector<T> before = out.get();
  run(copy_known<V, EvictLast, Cols>, {.grid = {kRows}, .block = {32}},
      gl<const T, 1, 1, kDynamic, Cols>::matrix(in.data(), kRows, Cols, kStride),
      gl<T, 1, 1, kDynamic, Cols>::matrix(out.data(), kRows, Cols, kStride));
  const std::vector<T> after = out.get();
  for (int i = 0; i < kRows * kStride; ++i) {
    if (i % kStride < Cols) {
      CHECK_EQUAL(convert<float>(after[i]), exact_value(i));
    } else {
      CHECK(std::memcmp(static_cast<const void*>(&after[i]), &before[i], sizeof(T)) == 0);
    }
  }
}

template <class V, bool EvictLast = false>
void check_known_lengths() {
  check_known<V, V::length, EvictLast>();
  check_known<V, V::length - V::run_length, EvictLast>();
  check_known<V, 3 * V::run_length, EvictLast>();
  check_known<V, 0, EvictLast>();
}

TEST(rows_whose_length_the_compiler_knows) {
  testing::for_each_layout<half, kLength>([&]<class V>() { check_known_lengths<V>(); });
  check_known_lengths<rv<float, 96>, true>();
  check_known_lengths<rv<bf16, kLength, ducks::rv_layout::runs<8>>, true>();
  check_known_lengths<rv<float, kLength, ducks::rv_layout::runs<8>>, true>();
  check_known_lengths<rt_bf<48, 16>::col_vec>();
  check_known_lengths<rt_bf<16, 48>::row_vec>();
}

// Of a row without columns, which may have no address: all zeros, and nothing is written.
template <class V>
__global__ void load_nothing(gl<const float> in, gl<float> none, gl<float> out) {
  V v, kept;
  load(v, in);
  store(none, v);
  store(out, v);
  load_evict_last(kept, in);
  store(out, kept, {.r = 1});
}

TEST(rows_without_columns_have_no_address) {
  testing::for_each_layout<float, kLength>([&]<class V>() {
    const buffer<float> out(size_t{2 * kLength});
    run(load_nothing<V>, {.grid = {1}, .block = {32}}, gl<const float>::vector(nullptr, 0),
        gl<float>::vector(nullptr, 0), gl<float>::matrix(out.data(), 2, kLength, kLength));
    for (const float x : out.get()) CHECK_EQUAL(x, 0.0f);
  });
}

TEST(single_elements_take_any_length_and_address) {
  for (const int64_t cols : {1, 31, 33, 255, 256, 257, 300}) {
    check_copy<rv<bf16, kLength>, bf16, bf16>(3, cols, cols + 1);
    check_copy<rv<float, kLength>, float, float>(3, cols, cols);
  }
}

TEST(element_types_convert_on_the_way) {
  using vector = rv<float, kLength, ducks::rv_layout::runs<8>>;
  check_copy<vector, bf16, half>(2, 256, 256);
  check_copy<vector, half, float>(2, 120, 128);
  check_copy<vector, float, bf16>(1, 512, 512);
  check_copy<rv<bf16, kLength, ducks::rv_layout::runs<4>>, float, half>(1, 252, 256);
}

// Past the last column: zeros in registers, whatever lies in memory.
template <class V>
__global__ void count_zeros(gl<const float> in, float* zeros) {
  V v;
  load(v, in);
  map([](float x) { return x == 0.0f ? 1.0f : 0.0f; }, v, v);
  float n;
  sum(n, v);
  if (arch::lane_id() == 0) *zeros = n;
}

TEST(past_the_last_column_is_zero) {
  const buffer<float> in(std::vector<float>(kLength, 7.0f)), zeros(1);
  testing::for_each_layout<float, kLength>([&]<class V>() {
    for (const int cols : {8, 40, 248, 256}) {
      run(count_zeros<V>, {.grid = {1}, .block = {32}}, gl<const float>::vector(in.data(), cols),
          zeros.data());
      CHECK_EQUAL(zeros.get()[0], kLength - cols);
    }
  });
}

// A tensor [2, 3, 4, 32] that lies in memory as [4, 2, 3, 32], and one with compile-time extents.
template <class G>
__global__ void copy_all(G in, gl<float, 2, 3, 4, 32> out) {
  const coord at{arch::block_x(), arch::block_y(), arch::block_z(), 0};
  rv<float, 32> v;
  load(v, in, at);
  store(out, v, at);
}

TEST(four_dimensions_with_any_strides) {
  const buffer<float> in(testing::exact_values<float>(2 * 3 * 4 * 32)), out(2 * 3 * 4 * 32);
  const gl<const float> view{in.data(), 2, 3, 4, 32, 3 * 32, 32, 2 * 3 * 32};
  run(copy_all<gl<const float>>, {.grid = {2, 3, 4}, .block = {32}}, view,
      {out.data(), {}, {}, {}, {}, 3 * 4 * 32, 4 * 32, 32});
  const std::vector<float> got = out.get();
  for (int b = 0; b < 2; ++b) {
    for (int d = 0; d < 3; ++d) {
      for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 32; ++c) {
          CHECK_EQUAL(got[((b * 3 + d) * 4 + r) * 32 + c],
                      exact_value(((r * 2 + b) * 3 + d) * 32 + c));
        }
      }
    }
  }
}

// Two rows through two slots of shared memory: the second is asked for before the first is used.
template <class T, class Layout>
__global__ void copy_async(gl<const T> in, gl<T> out) {
  using slot = sv<T, kLength>;
  auto* slots = reinterpret_cast<slot*>(arch::dynamic_shared());
  for (int r = 0; r < 2; ++r) {
    load_async<Layout>(slots[r], in, {.r = r});
    arch::cp_async_commit();
  }
  rv<float, kLength, Layout> v;
  arch::cp_async_wait<1>();
  load(v, slots[0]);
  store(out, v, {.r = 0});
  arch::cp_async_wait<0>();
  load(v, slots[1]);
  store(out, v, {.r = 1});
}

template <class T, class Layout>
void check_async(int64_t cols) {
  const buffer<T> in(testing::exact_values<T>(2 * kLength));
  const buffer<T> out(static_cast<size_t>(2 * kLength));
  run(copy_async<T, Layout>,
      {.grid = {1}, .block = {32}, .shared_bytes = 2 * sizeof(sv<T, kLength>)},
      gl<const T>::matrix(in.data(), 2, cols, kLength),
      gl<T>::matrix(out.data(), 2, kLength, kLength));
  const std::vector<T> got = out.get();
  for (int i = 0; i < 2 * kLength; ++i) {
    CHECK_EQUAL(convert<float>(got[i]), i % kLength < cols ? exact_value(i) : 0.0f);
  }
}

TEST(asynchronous_loads_arrive_with_zeros_past_the_end) {
  for (const int64_t cols : {8, 64, 200, 256}) {
    check_async<bf16, ducks::rv_layout::runs<8>>(cols);
    check_async<half, ducks::rv_layout::runs<2>>(cols);
    check_async<float, ducks::rv_layout::runs<4>>(cols);
    check_async<float, ducks::rv_layout::runs<8>>(cols);
    check_async<float, ducks::rv_layout::naive>(cols);
  }
}

// Through a shared vector, in which another layout finds the same elements.
template <class V, class T>
__global__ void through_shared(const float* in, float* out) {
  auto& shared = *reinterpret_cast<sv<T, kLength>*>(arch::dynamic_shared());
  V v;
  load(v, gl<const float>::vector(in, kLength));
  store(shared, v);
  arch::sync_warp();
  rv<float, kLength> w;
  load(w, shared);
  store(gl<float>::vector(out, kLength), w);
}

TEST(shared_vectors_keep_the_order_of_elements) {
  const buffer<float> in(testing::exact_values<float>(kLength)), out(static_cast<size_t>(kLength));
  const auto check_through = [&]<class V, class T>(V, T) {
    run(through_shared<V, T>, {.grid = {1}, .block = {32}, .shared_bytes = kLength * sizeof(T)},
        in.data(), out.data());
    for (int i = 0; i < kLength; ++i) CHECK_EQUAL(out.get()[i], exact_value(i));
  };
  testing::for_each_vector<kLength>([&]<class V>() {
    check_through(V{}, float{});
    check_through(V{}, bf16{});
    check_through(V{}, half{});
  });
}

// ---- the vectors of tiles, whose elements several lanes hold

template <class V, class T>
__global__ void load_vector(gl<const T> in, coord at, float* out) {
  V v;
  load(v, in, at);
  testing::scatter(out, v);
}

template <class V, class T>
__global__ void load_pointer(const T* in, float* out) {
  V v;
  load(v, in);
  testing::scatter(out, v);
}

template <class V, class T>
__global__ void store_pointer(const T* in, T* out) {
  V v;
  load(v, in);
  store(out, v);
}

// Vector number 1 of a row, at any address and with any number of columns.
template <class V, class T>
void check_tile_vector(int offset, int cols) {
  const int n = offset + 2 * V::length;
  const buffer<T> in(testing::exact_values<T>(n)), out(static_cast<size_t>(n));
  const buffer<float> shown(static_cast<size_t>(V::length));
  run(load_vector<V, T>, {.grid = {1}, .block = {32}},
      gl<const T>::vector(in.data() + offset, cols), {.c = 1}, shown.data());
  for (int i = 0; i < V::length; ++i) {
    const int at = V::length + i;
    CHECK_EQUAL(shown.get()[i], at < cols ? exact_value(offset + at) : 0.0f);
  }
  run(load_pointer<V, T>, {.grid = {1}, .block = {32}}, in.data() + offset, shown.data());
  for (int i = 0; i < V::length; ++i) CHECK_EQUAL(shown.get()[i], exact_value(offset + i));

  const std::vector<T> before = out.get();
  run(store_pointer<V, T>, {.grid = {1}, .block = {32}}, in.data(), out.data() + offset);
  run(copy_slice<V, false, T, T>, {.grid = {1}, .block = {32}},
      gl<const T>::vector(in.data() + offset, cols), gl<T>::vector(out.data() + offset, cols),
      {.c = 1});
  const std::vector<T> after = out.get();
  for (int i = 0; i < n; ++i) {
    const int at = i - offset;  // in the row
    if (at < 0 || (at >= cols && at >= V::length)) {
      CHECK(std::memcmp(static_cast<const void*>(&after[i]), &before[i], sizeof(T)) == 0);
    } else {
      CHECK_EQUAL(convert<float>(after[i]), exact_value(at < V::length ? at : i));
    }
  }
}

TEST(vectors_of_tiles_take_any_address) {
  testing::for_each_dtype([&]<class T>() {
    testing::for_each_dtype([&]<class U>() {
      for (const int offset : {0, 1, 2}) {
        for (const int cols : {0, 48, 49, 62, 96}) {
          check_tile_vector<typename rt<T, 48, 16>::col_vec, U>(offset, cols);
          check_tile_vector<typename rt<T, 16, 48>::row_vec, U>(offset, cols);
        }
      }
    });
  });
}

template <class V, class T>
__global__ void through_both(const float* in, float* out) {
  auto& shared = *reinterpret_cast<sv<T, V::length>*>(arch::dynamic_shared());
  V v;
  testing::gather(v, in);
  store(shared, v);
  arch::sync_warp();
  store(gl<float>::vector(out, V::length), shared);
  load(v, shared);
  testing::scatter(out + V::length, v);
}

TEST(vectors_of_tiles_through_shared_memory) {
  testing::for_each_dtype([&]<class T>() {
    const auto check_through = [&]<class V>() {
      const buffer<float> in(testing::exact_values<float>(V::length)), out(size_t{2 * V::length});
      run(through_both<V, T>, {.grid = {1}, .block = {32}, .shared_bytes = V::length * sizeof(T)},
          in.data(), out.data());
      for (int i = 0; i < 2 * V::length; ++i) {
        CHECK_EQUAL(out.get()[i], exact_value(i % V::length));
      }
    };
    check_through.template operator()<rt_fl<48, 16>::col_vec>();
    check_through.template operator()<rt_fl<16, 48>::row_vec>();
    check_through.template operator()<rt_bf<16, 48>::row_vec>();
  });
}

// A shared vector from a tensor: zeros past the last column.
template <class T>
__global__ void fill_shared(gl<const T> in, coord at, gl<float> out) {
  auto& shared = *reinterpret_cast<sv<float, 40>*>(arch::dynamic_shared());
  load(shared, in, at);
  arch::sync_warp();
  store(out, shared);
}

TEST(shared_vectors_from_tensors) {
  testing::for_each_dtype([&]<class T>() {
    for (const int cols : {3, 40, 41, 80}) {
      const buffer<T> in(testing::exact_values<T>(cols));
      const buffer<float> out(size_t{40});
      run(fill_shared<T>, {.grid = {1}, .block = {32}, .shared_bytes = 40 * sizeof(float)},
          gl<const T>::vector(in.data(), cols), {.c = 1}, gl<float>::vector(out.data(), 40));
      for (int i = 0; i < 40; ++i) {
        CHECK_EQUAL(out.get()[i], 40 + i < cols ? exact_value(40 + i) : 0.0f);
      }
    }
  });
}

}  // namespace
