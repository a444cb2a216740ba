// ops/global/tile_load_store.cuh: register and shared tiles from and to global memory, at any
// address, with ragged edges, by a warp and by groups.
#include <cstring>

#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;
namespace rt_layout = ducks::rt_layout;
namespace st_layout = ducks::st_layout;

namespace {

template <class Tile>
constexpr int kSharedBytes = shared_tile<Tile> ? sizeof(Tile) : 0;

// f(tile), of a tile in registers or in shared memory.
template <class Tile, class F>
KITTENS_DEVICE void with_tile(F f) {
  if constexpr (shared_tile<Tile>) {
    f(shared_allocator<>(arch::dynamic_shared()).template allocate<Tile>());
  } else {
    Tile in_registers;
    f(in_registers);
  }
}

// ---- whole tiles at raw pointers

template <class Tile, class T>
__global__ void load_at(const T* src, int64_t row_stride, float* out) {
  with_tile<Tile>([&](Tile& t) {
    load(t, src, row_stride);
    scatter(out, t);
  });
}

template <class Tile, class T>
__global__ void store_at(const float* in, T* dst, int64_t row_stride) {
  with_tile<Tile>([&](Tile& t) {
    gather(t, in);
    store(dst, t, row_stride);
  });
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(static_cast<const void*>(&a), &b, sizeof(T)) == 0;
}

// Row r of the tile begins at element offset + r · stride of a buffer; what is between rows keeps
// its bits.
template <class Tile, class T>
void check_at(int64_t offset, int64_t stride) {
  const int64_t n = offset + stride * Tile::rows;
  const host::launch_config config{
      .grid = {1}, .block = {kWarp}, .shared_bytes = kSharedBytes<Tile>};
  const buffer<T> src(exact_values<T>(n)), dst(static_cast<size_t>(n));
  const buffer<float> in(exact_tile<Tile>()), out(static_cast<size_t>(Tile::num_elements));
  run(load_at<Tile, T>, config, src.data() + offset, stride, out.data());
  check_tile<Tile>(out.get(), [&](int r, int c) { return exact_value(offset + r * stride + c); });

  const std::vector<T> before = dst.get();
  run(store_at<Tile, T>, config, in.data(), dst.data() + offset, stride);
  const std::vector<T> after = dst.get();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t r = (i - offset) / stride, c = (i - offset) % stride;
    if (i >= offset && c < Tile::cols) {
      CHECK_EQUAL(convert<float>(after[i]), exact_value(r * Tile::cols + c));
    } else {
      CHECK(same_bits(after[i], before[i]));
    }
  }
}

// Rows of a multiple of 16 bytes and others, from aligned elements and others.
template <class Tile, class T>
void check_addresses() {
  check_at<Tile, T>(0, Tile::cols);
  check_at<Tile, T>(0, Tile::cols + 8);
  check_at<Tile, T>(0, Tile::cols + 2);
  check_at<Tile, T>(2, Tile::cols + 2);
  check_at<Tile, T>(1, Tile::cols + 8);
  check_at<Tile, T>(0, Tile::cols + 1);
}

// Tiles of every layout; half is bf16 to all but conversions.
template <class F>
void for_each_tile(F f) {
  for_each_shape([&]<int Rows, int Cols>() {
    f.template operator()<rt<bf16, Rows, Cols, rt_layout::row>>();
    f.template operator()<rt<float, Rows, Cols, rt_layout::col>>();
    f.template operator()<st<bf16, Rows, Cols, st_layout::swizzle>>();
    f.template operator()<st<float, Rows, Cols, st_layout::naive>>();
  });
  f.template operator()<rt<float, 32, 48, rt_layout::row>>();
  f.template operator()<rt<bf16, 32, 48, rt_layout::col>>();
  f.template operator()<st<float, 32, 48, st_layout::swizzle>>();
  f.template operator()<st<bf16, 32, 48, st_layout::naive>>();
}

TEST(tiles_take_any_address) {
  for_each_tile([&]<class Tile>() { check_addresses<Tile, typename Tile::dtype>(); });
}

TEST(element_types_convert_on_the_way) {
  for_each_dtype([&]<class T>() {
    for_each_dtype([&]<class U>() {
      check_addresses<rt<T, 16, 32, rt_layout::row>, U>();
      check_addresses<rt<T, 16, 32, rt_layout::col>, U>();
      check_addresses<st<T, 32, 48, st_layout::swizzle>, U>();
    });
  });
}

// NaNs keep theirs, too: at an even address they move in pairs, at an odd one alone.
template <class Tile>
__global__ void copy_at(const bf16* src, bf16* dst) {
  with_tile<Tile>([&](Tile& t) {
    load(t, src, Tile::cols);
    arch::sync_warp();
    store(dst, t, Tile::cols);
  });
}

template <class Tile>
void check_bits() {
  constexpr uint16_t kNan = 0x7fad;
  bf16 nan;
  std::memcpy(static_cast<void*>(&nan), &kNan, sizeof(nan));
  for (const int offset : {0, 1}) {
    const buffer<bf16> src(std::vector<bf16>(Tile::num_elements + offset, nan));
    const buffer<bf16> dst(exact_values<bf16>(Tile::num_elements + offset));
    run(copy_at<Tile>, {.grid = {1}, .block = {kWarp}, .shared_bytes = kSharedBytes<Tile>},
        src.data() + offset, dst.data() + offset);
    for (int i = 0; i < Tile::num_elements; ++i) CHECK(same_bits(dst.get()[i + offset], nan));
  }
}

TEST(a_copy_changes_no_bit) {
  check_bits<rt_bf<16, 16>>();
  check_bits<rt_bf<16, 16, rt_layout::col>>();
  check_bits<st_bf<16, 16>>();
}

// ---- tiles of tensors

// Each block moves tile (x, y) of `in` to `out`, by a group of Warps warps, and shows what warp 0
// of it has: of a register tile its own, of a shared tile all.
template <class Tile, int Warps, class In, class Out>
__global__ void copy_tiles(gl<const In> in, gl<Out> out, float* shown) {
  const coord at{.r = arch::block_x(), .c = arch::block_y()};
  with_tile<Tile>([&](Tile& t) {
    using movement = tile_movement<Warps>;
    movement::load(t, in, at);
    arch::sync_block();
    movement::store(out, t, at);
    const int number = arch::block_x() * arch::grid_y() + arch::block_y();
    if (arch::warp_id() == 0) scatter(shown + number * Tile::num_elements, t);
  });
}

template <class Tile, int Warps, class In, class Out = In>
void check_tensor(int64_t rows, int64_t cols, int64_t stride) {
  constexpr int kRows = register_tile<Tile> ? Warps * Tile::rows : Tile::rows;
  const int64_t down = (rows + kRows - 1) / kRows, across = (cols + Tile::cols - 1) / Tile::cols;
  const buffer<In> in(exact_values<In>(rows * stride));
  const buffer<Out> out(static_cast<size_t>(rows * stride));
  const buffer<float> shown(static_cast<size_t>(down * across * Tile::num_elements));
  const std::vector<Out> before = out.get();
  run(copy_tiles<Tile, Warps, In, Out>,
      {.grid = {down, across}, .block = {Warps * kWarp}, .shared_bytes = kSharedBytes<Tile>},
      gl<const In>::matrix(in.data(), rows, cols, stride),
      gl<Out>::matrix(out.data(), rows, cols, stride), shown.data());
  const std::vector<Out> after = out.get();
  for (int64_t i = 0; i < rows * stride; ++i) {
    if (i % stride < cols) {
      CHECK_EQUAL(convert<float>(after[i]), exact_value(i));
    } else {
      CHECK(same_bits(after[i], before[i]));
    }
  }
  const std::vector<float> tiles = shown.get();
  for (int64_t n = 0; n < down * across; ++n) {
    const auto first = tiles.begin() + n * Tile::num_elements;
    check_tile<Tile>({first, first + Tile::num_elements}, [&](int r, int c) {
      const int64_t row = n / across * kRows + r, col = n % across * Tile::cols + c;
      return row < rows && col < cols ? exact_value(row * stride + col) : 0.0f;
    });
  }
}

// Whole tiles; ragged in rows, in columns by 8, 2 and 1, and smaller than one tile.
template <class Tile, int Warps, class In, class Out = In>
void check_extents() {
  constexpr int kRows = register_tile<Tile> ? Warps * Tile::rows : Tile::rows;
  check_tensor<Tile, Warps, In, Out>(2 * kRows, 2 * Tile::cols, 2 * Tile::cols);
  check_tensor<Tile, Warps, In, Out>(kRows + 3, Tile::cols, Tile::cols + 8);
  check_tensor<Tile, Warps, In, Out>(2 * kRows - 1, Tile::cols + 8, 2 * Tile::cols);
  check_tensor<Tile, Warps, In, Out>(kRows, Tile::cols + 10, 2 * Tile::cols);
  check_tensor<Tile, Warps, In, Out>(kRows - 5, 2 * Tile::cols - 1, 2 * Tile::cols);
  check_tensor<Tile, Warps, In, Out>(1, 1, 1);
  check_tensor<Tile, Warps, In, Out>(7, 13, 13);
}

TEST(tiles_of_tensors) {
  for_each_tile([&]<class Tile>() { check_extents<Tile, 1, typename Tile::dtype>(); });
}

TEST(groups_share_a_tile) {
  check_extents<rt<bf16, 16, 64>, 4, bf16>();
  check_extents<rt<float, 32, 32, rt_layout::col>, 4, half>();
  check_extents<rt<half, 16, 16>, 3, half>();
  check_extents<st<bf16, 64, 64>, 4, bf16>();
  check_extents<st<bf16, 16, 48>, 4, bf16>();  // fewer runs than threads, six in a row
  check_extents<st<float, 64, 48>, 3, bf16>();
  check_extents<st<float, 48, 32>, 3, bf16>();  // 12 rows in a step
  check_extents<st<half, 128, 16>, 8, half>();
}

TEST(tensors_convert_too) {
  check_extents<rt<float, 16, 32>, 1, bf16, half>();
  check_extents<rt<half, 16, 32, rt_layout::col>, 1, float, bf16>();
  check_extents<st<bf16, 16, 64>, 1, float, half>();
  check_extents<st<float, 32, 32>, 1, half, float>();
}

// ---- four dimensions, as of a tensor [batch, rows, heads, cols] taken head by head

template <class Tile>
__global__ void copy_heads(gl<const bf16> in, gl<bf16> out) {
  const coord at{.b = arch::block_x(), .d = arch::block_y(), .r = arch::block_z(), .c = 0};
  with_tile<Tile>([&](Tile& t) {
    load(t, in, at);
    arch::sync_warp();
    store(out, t, at);
  });
}

template <class Tile>
void check_heads() {
  constexpr int kBatch = 2, kRows = 40, kHeads = 3, kCols = 32,
                kAll = kBatch * kRows * kHeads * kCols;
  const buffer<bf16> in(exact_values<bf16>(kAll)), out(size_t{kAll});
  run(copy_heads<Tile>,
      {.grid = {kBatch, kHeads, 3}, .block = {kWarp}, .shared_bytes = kSharedBytes<Tile>},
      {in.data(), kBatch, kHeads, kRows, kCols, kRows * kHeads * kCols, kCols, kHeads * kCols},
      {out.data(), kBatch, kHeads, kRows, kCols, kHeads * kRows * kCols, kRows * kCols, kCols});
  const std::vector<bf16> got = out.get();
  for (int i = 0; i < kAll; ++i) {
    const int c = i % kCols, r = i / kCols % kRows, h = i / kCols / kRows % kHeads;
    const int b = i / kCols / kRows / kHeads;
    CHECK_EQUAL(convert<float>(got[i]), exact_value(((b * kRows + r) * kHeads + h) * kCols + c));
  }
}

TEST(batches_and_heads_with_any_strides) {
  check_heads<rt_bf<16, 32>>();
  check_heads<rt_bf<16, 32, rt_layout::col>>();
  check_heads<st_bf<16, 32>>();
}

// ---- asynchronous copies

template <class S, int Warps, bool Whole>
__global__ void copy_async(gl<const typename S::dtype> in, float* shown) {
  with_tile<S>([&](S& t) {
    using movement = tile_movement<Warps>;
    if constexpr (Whole) {
      movement::load_async(t, in.data, in.row_stride);
    } else {
      movement::load_async(t, in);
    }
    load_async_commit();
    load_async_wait();
    arch::sync_block();
    if (arch::warp_id() == 0) scatter(shown, t);
  });
}

template <class S, int Warps, bool Whole = false>
void check_async(int64_t rows, int64_t cols, int64_t stride) {
  using T = typename S::dtype;
  const buffer<T> in(exact_values<T>(rows * stride));
  const buffer<float> shown(static_cast<size_t>(S::num_elements));
  run(copy_async<S, Warps, Whole>,
      {.grid = {1}, .block = {Warps * kWarp}, .shared_bytes = kSharedBytes<S>},
      gl<const T>::matrix(in.data(), rows, cols, stride), shown.data());
  check_tile<S>(shown.get(), [&](int r, int c) {
    return r < rows && c < cols ? exact_value(r * stride + c) : 0.0f;
  });
}

TEST(asynchronous_copies_arrive_with_zeros_past_the_edges) {
  for_each_shared_tile([&]<class S>() {
    check_async<S, 1, true>(S::rows, S::cols, S::cols + 8);
    check_async<S, 1>(S::rows + 1, S::cols, S::cols);
    check_async<S, 1>(S::rows - 3, S::cols - 8, S::cols);
    check_async<S, 1>(3, S::cols, S::cols + 1);        // rows that 16 bytes do not divide
    check_async<S, 1>(S::rows, S::cols - 3, S::cols);  // and an edge
  });
  check_async<st_bf<64, 128>, 4>(64, 128, 128);
  check_async<st_fl<32, 48>, 4>(30, 44, 48);
}

}  // namespace
