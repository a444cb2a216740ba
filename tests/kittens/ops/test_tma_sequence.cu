// ops/tma.cuh: tiles of the rows of one sequence, of tensors and of packed sequences: with all
// columns, in tiles with padding too, and with those that there are alone.
#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;
using padded = ducks::st_layout::swizzle_128;

namespace {

// Tensors [batch, rows, heads, cols], or sequences that are packed one behind the other, in the
// same memory: [total rows, heads, cols], of which a row of a head lies `pitch` elements behind the
// last head's.
template <class T>
struct tensor {
  static constexpr int heads = 2, total_rows = 120;
  int cols, pitch;
  std::vector<T> values = exact_values<T>(size());

  explicit tensor(int cols) : cols(cols), pitch((cols + 7) / 8 * 8 + 16) {}
  int64_t index(int row, int head, int c) const {
    return (int64_t{row} * heads + head) * pitch + c;
  }
  int64_t size() const { return index(total_rows, 0, 0); }
  gl<T> view(T* data, int batch) const {
    const int rows = total_rows / batch;
    const int64_t row_stride = heads * pitch;
    return {data, batch, heads, rows, cols, rows * row_stride, pitch, row_stride};
  }
};

// The rows from `row` on of the head of a sequence, which begins at row `start` of the tensor.
struct place {
  int start, length, row, head;
  sequence_origin origin;
};
struct places {
  static constexpr int count = 3;
  place at[count];
};

// Sequences whose ends cut a tile of 16, 32 or 64 rows, and one that ends with a tile of 16.
constexpr int kBatch = 2, kRows = tensor<float>::total_rows / kBatch;
const places kOfTensor = {{{0, kRows, 32, 1, sequence_origin::of(0)},
                           {kRows, kRows, 0, 0, sequence_origin::of(1)},
                           {kRows, kRows, 48, 1, sequence_origin::of(1)}}};
const places kPacked = {{{0, 41, 32, 0, sequence_origin::packed(0, 41)},
                         {41, 48, 32, 1, sequence_origin::packed(41, 48)},
                         {89, 31, 0, 1, sequence_origin::packed(89, 31)}}};

template <class Map>
Map map_of(const gl<typename Map::tile::dtype>& view) {
  return view.batch == 1 ? Map::of_packed(view) : Map::of(view);
}

template <class Tile>
KITTENS_INLINE int bytes_of(const tma_sequence_map<Tile>&) {
  return tma::bytes<Tile>;
}
template <class Tile>
KITTENS_INLINE int bytes_of(const tma_columns_map<Tile>& map) {
  return map.bytes();
}

template <class Tile>
struct shared {
  Tile tile;
  semaphore full;
};
template <class Tile>
constexpr host::launch_config launch() {
  return {.grid = {1}, .block = {32}, .shared_bytes = sizeof(shared<Tile>)};
}

// One tile after the other, over ones, with one semaphore: if fewer bytes came than it expects, its
// phase would not end, and if more came, the next one would not.
template <class Map>
__global__ void fetch(const __grid_constant__ Map map, places from, float* out) {
  using tile = typename Map::tile;
  using whole = with_padding<tile>;
  auto& s = *reinterpret_cast<shared<tile>*>(arch::dynamic_shared());
  if (laneid() == 0) init_semaphore(s.full, 1);
  for (int i = 0; i < places::count; ++i) {
    group<1>::fill_columns(s.tile, 0, whole::cols, 1.0f);  // ends with the proxy fence
    arch::sync_warp();
    if (laneid() == 0) {
      expect_bytes(s.full, bytes_of(map));
      tma::load_async(s.tile, map, s.full, from.at[i].origin, from.at[i].row, from.at[i].head);
    }
    arch::sync_warp();
    wait(s.full, i % 2);
    scatter(out + i * whole::num_elements, with_padding_of(s.tile));
    arch::sync_warp();
  }
}

// `come`: of the columns that are in shared memory, those that a load brings, zeros behind the
// sequence's last row and the tensor's last column.
template <class Map>
void check_loads(const tensor<typename Map::tile::dtype>& x, int batch, int come) {
  using whole = with_padding<typename Map::tile>;
  const places& from = batch == 1 ? kPacked : kOfTensor;
  const buffer<typename Map::tile::dtype> in(x.values);
  const buffer<float> out(size_t{places::count * whole::num_elements});
  run(fetch<Map>, launch<typename Map::tile>(), map_of<Map>(x.view(in.data(), batch)), from,
      out.data());
  const std::vector<float> got = out.get();
  for (int i = 0; i < places::count; ++i) {
    const place& at = from.at[i];
    const auto begin = got.begin() + i * whole::num_elements;
    check_tile<whole>({begin, begin + whole::num_elements}, [&](int r, int c) {
      if (c >= come) return 1.0f;
      if (at.row + r >= at.length || c >= x.cols) return 0.0f;
      return convert<float>(x.values[x.index(at.start + at.row + r, at.head, c)]);
    });
  }
}

// ---- of the columns that there are alone

template <class Tile>
void check_columns(std::initializer_list<int> columns) {
  using T = typename Tile::dtype;
  constexpr int kPiece = 16 / sizeof(T);
  for (const int cols : columns) {
    const tensor<T> x(cols);
    const buffer<T> in(x.values);
    const int come = std::min((cols + kPiece - 1) / kPiece * kPiece, Tile::cols);
    for (const int batch : {1, kBatch}) {
      const auto map = map_of<tma_columns_map<Tile>>(x.view(in.data(), batch));
      CHECK_EQUAL(map.columns, come);
      CHECK_EQUAL(map.bytes(), come * Tile::rows * int(sizeof(T)));
      check_loads<tma_columns_map<Tile>>(x, batch, come);
    }
  }
}

// The tensor may be wider than the tile, and end within a piece of 16 bytes.
TEST(columns_that_there_are) {
  check_columns<st_bf<64, 64>>({8, 40, 61, 64, 72, 80, 88, 96});
  check_columns<st_bf<32, 80>>({8, 40, 64, 72, 80, 88, 96});
  check_columns<st_bf<32, 128>>({8, 40, 64, 72, 77, 80, 88, 96, 128});
  check_columns<st_hf<16, 128>>({64, 80, 136});
  check_columns<st_fl<32, 32>>({4, 16, 32, 40});
}

TEST(columns_that_there_are_of_padded_tiles) {
  check_columns<st_bf<32, 80, padded>>({8, 40, 64, 72, 77, 80});
  check_columns<st_bf<16, 96, padded>>({64, 80, 96});
  check_columns<st_hf<64, 16, padded>>({8, 16});
  check_columns<st_fl<16, 48, padded>>({4, 32, 36, 48});
}

// ---- whole tiles

// Zeros are behind the tensor's last column, in the padding too.
template <class Tile>
void check_whole(std::initializer_list<int> columns) {
  for (const int cols : columns) {
    const tensor<typename Tile::dtype> x(cols);
    for (const int batch : {1, kBatch}) {
      check_loads<tma_sequence_map<Tile>>(x, batch, with_padding<Tile>::cols);
    }
  }
}

TEST(whole_tiles) {
  check_whole<st_bf<32, 80>>({40, 80, 88});
  check_whole<st_bf<64, 128>>({72, 128});
  check_whole<st_bf<32, 80, padded>>({8, 64, 72, 77, 80});
  check_whole<st_hf<16, 96, padded>>({80, 96});
  check_whole<st_fl<16, 48, padded>>({32, 44, 48});
}

template <class Tile>
__global__ void deliver(const __grid_constant__ tma_sequence_map<Tile> map, places to,
                        const float* in) {
  auto& s = *reinterpret_cast<shared<Tile>*>(arch::dynamic_shared());
  gather(with_padding_of(s.tile), in);
  arch::fence_async_proxy();
  arch::sync_warp();
  if (laneid() != 0) return;
  for (const place& at : to.at) {
    tma::store_async(map, s.tile, at.origin, at.row, at.head);
    tma::store_commit_group();
  }
  tma::store_async_wait();
}

// Pieces of 16 bytes are written whole. The padding does not arrive, whatever is in it.
template <class Tile>
void check_stores(std::initializer_list<int> columns) {
  using T = typename Tile::dtype;
  using whole = with_padding<Tile>;
  constexpr int kPiece = 16 / sizeof(T);
  const std::vector<float> values = random_tile<whole>(3);
  const buffer<float> in(values);
  for (const int cols : columns) {
    const tensor<T> x(cols);
    const int written = std::min((cols + kPiece - 1) / kPiece * kPiece, Tile::cols);
    for (const int batch : {1, kBatch}) {
      const places& to = batch == 1 ? kPacked : kOfTensor;
      const buffer<T> out(x.values);
      run(deliver<Tile>, launch<Tile>(), map_of<tma_sequence_map<Tile>>(x.view(out.data(), batch)),
          to, in.data());
      std::vector<T> want = x.values;
      for (const place& at : to.at) {
        for (int r = 0; r < Tile::rows && at.row + r < at.length; ++r) {
          T* const row = &want[x.index(at.start + at.row + r, at.head, 0)];
          for (int c = 0; c < written; ++c) row[c] = convert<T>(values[r * whole::cols + c]);
        }
      }
      const std::vector<T> got = out.get();
      for (size_t i = 0; i < want.size(); ++i) {
        CHECK_EQUAL(convert<float>(got[i]), convert<float>(want[i]));
      }
    }
  }
}

TEST(stores_of_the_tensors_columns) {
  check_stores<st_bf<32, 80>>({80});
  check_stores<st_bf<32, 80, padded>>({8, 64, 72, 77, 80});
  check_stores<st_hf<64, 96, padded>>({80, 96});
  check_stores<st_fl<16, 48, padded>>({32, 44, 48});
}

TEST(a_padded_tile_has_room_for_its_columns_alone) {
  const tensor<bf16> x(88);
  const buffer<bf16> in(x.values);
  using tile = st_bf<16, 80, padded>;
  for (const int batch : {1, kBatch}) {
    const auto view = x.view(in.data(), batch);
    const std::string want =
        "tma_sequence_map: a tile with padding has room for 80 columns, the tensor has 88";
    CHECK_CONTAINS(error_of([&] { map_of<tma_sequence_map<tile>>(view); }), want);
    CHECK_CONTAINS(error_of([&] { map_of<tma_columns_map<tile>>(view); }), want);
  }
}

}  // namespace
