// ops/shared/elementwise.cuh: some columns of a shared tile, padding too, and the ones beside one.
#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;
using padded = ducks::st_layout::swizzle_128;

namespace {

struct columns {
  int first, end;
  float value;
};

template <int Warps, class S>
__global__ void fill_some(const float* in, columns at, float* out) {
  S& tile = *reinterpret_cast<S*>(arch::dynamic_shared());
  if (arch::warp_id() == 0) gather(with_padding_of(tile), in);
  arch::sync_block();
  group<Warps>::fill_columns(tile, at.first, at.end, at.value);
  arch::sync_block();
  if (arch::warp_id() == 0) scatter(out, with_padding_of(tile));
}

template <int Warps, class S>
void check_fill(columns at) {
  using whole = with_padding<S>;
  const std::vector<float> in = random_tile<whole>(1);
  const buffer<float> source(in), out(size_t{whole::num_elements});
  run(fill_some<Warps, S>, {.grid = {1}, .block = {Warps * kWarp}, .shared_bytes = sizeof(S)},
      source.data(), at, out.data());
  check_tile<whole>(out.get(), [&](int r, int c) {
    const bool filled = c >= at.first && c < at.end;
    return filled ? round_to<typename S::dtype>(at.value) : in[r * whole::cols + c];
  });
}

// The first and the last columns, those around the boundary of two chunks, all of them, and none.
template <int Warps, class S>
void check_fills() {
  constexpr int kPiece = 16 / sizeof(typename S::dtype), kAll = with_padding<S>::cols;
  check_fill<Warps, S>({0, kPiece, 1.0f});
  check_fill<Warps, S>({S::cols - kPiece, S::cols, -3.3f});  // rounded
  check_fill<Warps, S>({kPiece, S::cols, 0.0f});
  check_fill<Warps, S>({0, kAll, kInfinity});
  for (const int at : {0, kPiece, S::cols}) check_fill<Warps, S>({at, at, 1.0f});
  if constexpr (S::chunks > 1) {
    check_fill<Warps, S>({S::chunk_cols - kPiece, S::chunk_cols + kPiece, 2.0f});
    check_fill<Warps, S>({S::chunk_cols, S::cols, 2.0f});
  }
  if constexpr (S::padding_cols > 0) {
    check_fill<Warps, S>({S::cols, S::cols + kPiece, 1.0f});
    check_fill<Warps, S>({S::cols - kPiece, S::cols + kPiece, 2.0f});
    check_fill<Warps, S>({kAll - kPiece, kAll, 1.0f});
  }
}

TEST(columns_in_chunks_of_every_width) {
  check_fills<1, st_bf<16, 64>>();
  check_fills<1, st_hf<16, 96>>();
  check_fills<4, st_bf<32, 80>>();
  check_fills<4, st_fl<16, 48>>();
}

TEST(columns_with_padding_behind_them) {
  check_fills<1, st_bf<16, 80, padded>>();
  check_fills<4, st_bf<64, 80, padded>>();
  check_fills<3, st_hf<48, 96, padded>>();
  check_fills<8, st_hf<16, 16, padded>>();
  check_fills<2, st_fl<16, 80, padded>>();
}

// ---- ones

// in: the tile, its padding, and the ones if they are beside it; out: the same.
template <int Warps, class B>
__global__ void set_beside(const float* in, float* out) {
  B& b = *reinterpret_cast<B*>(arch::dynamic_shared());
  constexpr bool kBeside = requires { b.ones; };
  constexpr int kTile = with_padding<typename B::tile_type>::num_elements;
  if (arch::warp_id() == 0) {
    gather(with_padding_of(b.tile), in);
    if constexpr (kBeside) gather(b.ones, in + kTile);
  }
  arch::sync_block();
  group<Warps>::set_ones(b);
  arch::sync_block();
  if (arch::warp_id() != 0) return;
  scatter(out, with_padding_of(b.tile));
  if constexpr (kBeside) scatter(out + kTile, b.ones);
}

template <int Warps, class B>
void check_ones() {
  using tile = typename B::tile_type;
  using whole = with_padding<tile>;
  constexpr int kAll = sizeof(B) / sizeof(typename B::dtype);
  std::vector<float> in = random_values(kAll, 2);
  for (float& value : in) value = round_to<typename B::dtype>(value);
  const buffer<float> source(in), out(size_t{kAll});
  run(set_beside<Warps, B>, {.grid = {1}, .block = {Warps * kWarp}, .shared_bytes = sizeof(B)},
      source.data(), out.data());
  const std::vector<float> got = out.get();
  check_tile<whole>(got, [&](int r, int c) {
    const bool is_one = tile::padding_cols > 0 && c >= tile::cols && c < tile::cols + 8;
    return is_one ? 1.0f : in[r * whole::cols + c];
  });
  for (int i = whole::num_elements; i < kAll; ++i) CHECK_EQUAL(got[i], 1.0f);
}

TEST(ones_beside_a_tile) {
  static_assert(sizeof(st_ones<bf16, 32, 80>) == 32 * (80 + 16) * 2);
  static_assert(sizeof(st_ones<bf16, 32, 64, padded>) == 32 * (64 + 64) * 2);
  check_ones<1, st_ones<bf16, 32, 80>>();
  check_ones<4, st_ones<half, 64, 64>>();
  check_ones<4, st_ones<bf16, 32, 64, padded>>();  // which has no padding
}

TEST(ones_in_the_padding) {
  static_assert(sizeof(st_ones<bf16, 32, 80, padded>) == sizeof(st_bf<32, 80, padded>));
  static_assert(sizeof(st_ones<half, 32, 112, padded>) == 32 * 128 * 2);
  check_ones<1, st_ones<bf16, 32, 80, padded>>();
  check_ones<4, st_ones<half, 64, 96, padded>>();
  check_ones<8, st_ones<bf16, 16, 112, padded>>();
}

}  // namespace
