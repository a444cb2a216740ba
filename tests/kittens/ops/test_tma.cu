// ops/tma.cuh: tiles of every width and dtype, inside of tensors and over their edges.
#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::gather;
using testing::run;
using testing::scatter;

namespace {

// A tensor [2, 3, rows, cols], its heads interleaved with its rows as attention has them, whose
// edges cut the tiles that lie there.
template <class T>
struct tensor {
  static constexpr int batch = 2, depth = 3;
  int rows, cols, row_pitch;  // row_pitch: elements from one row of a head to the next head's

  int64_t index(int b, int d, int r, int c) const {
    return ((int64_t{b} * rows + r) * depth + d) * row_pitch + c;
  }
  size_t size() const { return static_cast<size_t>(index(batch, 0, 0, 0)); }
  bool has(int r, int c) const { return r < rows && c < cols; }
  // What a store writes: whole pieces of 16 bytes.
  bool takes(int r, int c) const {
    constexpr int kPiece = 16 / sizeof(T);
    return r < rows && c < (cols + kPiece - 1) / kPiece * kPiece;
  }
  gl<T> view(T* data) const {
    return {data,      batch,
            depth,     rows,
            cols,      int64_t{rows} * depth * row_pitch,
            row_pitch, int64_t{depth} * row_pitch};
  }
};

// Two tiles high and wide, less a few.
template <class Tile>
tensor<typename Tile::dtype> cut_tensor() {
  const int cols = 2 * Tile::cols - 5;
  return {2 * Tile::rows - 3, cols, (cols + 7) / 8 * 8};
}

template <class Tile>
struct shared {
  Tile tile;
  semaphore full;
};

// One tile to floats.
template <class Tile, bool EvictFirst>
__global__ void fetch(const __grid_constant__ tma_map<Tile> map, coord at, float* out) {
  auto& s = *reinterpret_cast<shared<Tile>*>(arch::dynamic_shared());
  if (laneid() == 0) {
    init_semaphore(s.full, 1);
    tma::prefetch_map(map);
    tma::prefetch(map, at);
    expect_bytes(s.full, tma::bytes<Tile>);
    if constexpr (EvictFirst) {
      tma::load_async_evict_first(s.tile, map, s.full, at);
    } else {
      tma::load_async(s.tile, map, s.full, at);
    }
  }
  arch::sync_warp();
  wait(s.full, 0);
  scatter(out, s.tile);
}

// One tile from floats, stored or added.
template <class Tile, bool Add>
__global__ void deliver(const __grid_constant__ tma_map<Tile> map, coord at, const float* in) {
  auto& s = *reinterpret_cast<shared<Tile>*>(arch::dynamic_shared());
  gather(s.tile, in);
  arch::fence_async_proxy();
  arch::sync_warp();
  if (laneid() == 0) {
    if constexpr (Add) {
      tma::store_add_async(map, s.tile, at);
    } else {
      tma::store_async(map, s.tile, at);
    }
    tma::store_commit_group();
    tma::store_async_wait();
  }
}

constexpr coord kPlaces[] = {{0, 0, 0, 0}, {0, 1, 1, 0}, {1, 0, 0, 1}, {1, 2, 1, 1}};

template <class Tile, bool EvictFirst = false>
void check_loads() {
  using T = typename Tile::dtype;
  const tensor<T> x = cut_tensor<Tile>();
  const std::vector<T> values = testing::exact_values<T>(x.size());
  const buffer<T> in(values);
  const auto map = tma_map<Tile>::of(x.view(in.data()));
  for (const coord at : kPlaces) {
    const buffer<float> out(size_t{Tile::num_elements});
    run(fetch<Tile, EvictFirst>, {.grid = {1}, .block = {32}, .shared_bytes = sizeof(shared<Tile>)},
        map, at, out.data());
    testing::check_tile<Tile>(out.get(), [&](int r, int c) {
      const int row = int(at.r) * Tile::rows + r, col = int(at.c) * Tile::cols + c;
      if (!x.has(row, col)) return 0.0f;
      return convert<float>(values[x.index(int(at.b), int(at.d), row, col)]);
    });
  }
}

template <class Tile, bool Add>
void check_stores() {
  using T = typename Tile::dtype;
  const tensor<T> x = cut_tensor<Tile>();
  std::vector<T> want = testing::exact_values<T>(x.size());
  const buffer<T> out(want);
  const auto map = tma_map<Tile>::of(x.view(out.data()));
  std::vector<float> values = testing::exact_tile<Tile>();
  std::reverse(values.begin(), values.end());
  const buffer<float> in(values);
  for (const coord at : kPlaces) {
    run(deliver<Tile, Add>, {.grid = {1}, .block = {32}, .shared_bytes = sizeof(shared<Tile>)}, map,
        at, in.data());
    for (int i = 0; i < Tile::num_elements; ++i) {
      const int row = int(at.r) * Tile::rows + i / Tile::cols;
      const int col = int(at.c) * Tile::cols + i % Tile::cols;
      if (!x.takes(row, col)) continue;
      T& place = want[x.index(int(at.b), int(at.d), row, col)];
      place = convert<T>(Add ? convert<float>(place) + values[i] : values[i]);
    }
  }
  const std::vector<T> got = out.get();
  for (size_t i = 0; i < want.size(); ++i) {
    if (convert<float>(got[i]) == convert<float>(want[i])) continue;
    testing::fail("tensor", int(i),
                  testing::to_text(convert<float>(got[i])) + ", not " +
                      testing::to_text(convert<float>(want[i])));
    return;
  }
}

// Widths with rows of 32, 64, 96, … bytes: one and several chunks of each swizzle.
template <class T, class F>
void for_each_tile(F f) {
  f.template operator()<st<T, 16, 16>>();
  f.template operator()<st<T, 32, 32>>();
  f.template operator()<st<T, 16, 48>>();
  f.template operator()<st<T, 64, 64>>();
  f.template operator()<st<T, 32, 96>>();
  f.template operator()<st<T, 64, 128>>();
}

TEST(loads) {
  testing::for_each_dtype(
      [&]<class T>() { for_each_tile<T>([&]<class Tile>() { check_loads<Tile>(); }); });
}

TEST(stores) {
  testing::for_each_dtype(
      [&]<class T>() { for_each_tile<T>([&]<class Tile>() { check_stores<Tile, false>(); }); });
}

TEST(stores_that_add) {
  testing::for_each_dtype(
      [&]<class T>() { for_each_tile<T>([&]<class Tile>() { check_stores<Tile, true>(); }); });
}

TEST(tiles_of_256_rows) {
  check_loads<st_bf<256, 64>>();
  check_loads<st_bf<256, 64>, /*EvictFirst=*/true>();
  check_stores<st_bf<256, 64>, false>();
}

// The first rows of a tile, over ones.
template <class Tile>
__global__ void fetch_rows(const __grid_constant__ tma_map<Tile> map, coord at, int rows,
                           float* out) {
  auto& s = *reinterpret_cast<shared<Tile>*>(arch::dynamic_shared());
  for (int i = laneid(); i < Tile::num_elements; i += 32) s.tile.data[i] = bf16(1.0f);
  arch::fence_async_proxy();
  arch::sync_warp();
  if (laneid() == 0) {
    init_semaphore(s.full, 1);
    expect_bytes(s.full, rows * tma::bytes_of_row<Tile>);
    tma::load_async(s.tile, map, s.full, at);
  }
  arch::sync_warp();
  wait(s.full, 0);
  scatter(out, s.tile);
}

// Bytes that do not come are waited for without end.
TEST(the_first_rows_of_a_tile_come_alone) {
  using tile = st_bf<16, 96>;
  const tensor<bf16> x = cut_tensor<tile>();
  const std::vector<bf16> values = testing::exact_values<bf16>(x.size());
  const buffer<bf16> in(values);
  for (const int rows : {1, 5, 8, 16}) {
    const auto map = tma_map<tile>::of_first_rows(x.view(in.data()), rows);
    for (const coord at : kPlaces) {
      const buffer<float> out(size_t{tile::num_elements});
      run(fetch_rows<tile>, {.grid = {1}, .block = {32}, .shared_bytes = sizeof(shared<tile>)}, map,
          at, rows, out.data());
      testing::check_tile<tile>(out.get(), [&](int r, int c) {
        if (r >= rows) return 1.0f;
        const int row = int(at.r) * tile::rows + r, col = int(at.c) * tile::cols + c;
        if (!x.has(row, col)) return 0.0f;
        return convert<float>(values[x.index(int(at.b), int(at.d), row, col)]);
      });
    }
  }
}

// Tiles that lie one below the other, by one copy.
template <class Tile>
__global__ void fetch_tiles(const __grid_constant__ tma_map<Tile> map, coord at, int tiles,
                            float* out) {
  struct shared {
    Tile tile[3];
    semaphore full;
  };
  auto& s = *reinterpret_cast<shared*>(arch::dynamic_shared());
  if (laneid() == 0) {
    init_semaphore(s.full, 1);
    expect_bytes(s.full, tiles * tma::bytes<Tile>);
    tma::load_async(s.tile[0], map, s.full, at);
  }
  arch::sync_warp();
  wait(s.full, 0);
  for (int i = 0; i < tiles; ++i) scatter(out + i * Tile::num_elements, s.tile[i]);
}

TEST(tiles_one_below_the_other_come_at_once) {
  using tile = st_bf<16, 64>;
  const tensor<bf16> x{61, 123, 128};  // nearly four tiles high, and two wide
  const std::vector<bf16> values = testing::exact_values<bf16>(x.size());
  const buffer<bf16> in(values);
  for (const int tiles : {1, 2, 3}) {
    const auto map = tma_map<tile>::of_tiles(x.view(in.data()), tiles);
    for (const coord at : {coord{0, 1, 0, 0}, coord{1, 0, 1, 1}, coord{0, 0, 2, 1}}) {
      const buffer<float> out(size_t{3} * tile::num_elements);
      run(fetch_tiles<tile>,
          {.grid = {1}, .block = {32}, .shared_bytes = 3 * sizeof(tile) + sizeof(semaphore)}, map,
          at, tiles, out.data());
      const std::vector<float> got = out.get();
      for (int i = 0; i < tiles; ++i) {
        const auto from = got.begin() + i * tile::num_elements;
        testing::check_tile<tile>({from, from + tile::num_elements}, [&](int r, int c) {
          const int row = (int(at.r) + i) * tile::rows + r, col = int(at.c) * tile::cols + c;
          if (!x.has(row, col)) return 0.0f;
          return convert<float>(values[x.index(int(at.b), int(at.d), row, col)]);
        });
      }
    }
  }
}

// Each block of a cluster fetches one tile for all of them.
template <class Tile>
__global__ void share(const __grid_constant__ tma_map<Tile> map, float* out) {
  struct shared {
    Tile tile[2];
    semaphore full;
  };
  auto& s = *reinterpret_cast<shared*>(arch::dynamic_shared());
  const int rank = arch::cluster_rank();
  if (arch::thread_id() == 0) {
    init_semaphore(s.full, 1);
    expect_bytes(s.full, 2 * tma::bytes<Tile>);
  }
  arch::cluster_sync();
  if (arch::thread_id() == 0) {
    tma::load_async_multicast(s.tile[rank], map, s.full, {0, 0, rank, 0}, 0b11);
  }
  arch::sync_warp();
  wait(s.full, 0);
  for (int i = 0; i < 2; ++i) scatter(out + (2 * rank + i) * Tile::num_elements, s.tile[i]);
  arch::cluster_sync();
}

TEST(multicast_brings_a_tile_to_each_block) {
  using tile = st_bf<32, 96>;
  const std::vector<bf16> values = testing::exact_values<bf16>(2 * tile::num_elements);
  const buffer<bf16> in(values);
  const buffer<float> out(size_t{4 * tile::num_elements});
  run(share<tile>,
      {.grid = {2}, .block = {32}, .shared_bytes = 2 * sizeof(tile) + 16, .cluster = 2},
      tma_map<tile>::of(gl<bf16>::matrix(in.data(), 2 * tile::rows, tile::cols, tile::cols)),
      out.data());
  const std::vector<float> got = out.get();
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK_EQUAL(got[i], convert<float>(values[i % (2 * tile::num_elements)]));
  }
}

TEST(a_tensor_that_the_hardware_cannot_take_is_refused) {
  const buffer<bf16> x(size_t{64 * 64});
  using map = tma_map<st_bf<16, 16>>;
  CHECK_CONTAINS(testing::error_of([&] { map::of(gl<bf16>::matrix(x.data(), 16, 16, 20)); }), "16");
  CHECK(!testing::error_of([&] { map::of(gl<bf16>::matrix(x.data() + 1, 16, 16, 16)); }).empty());
}

}  // namespace
