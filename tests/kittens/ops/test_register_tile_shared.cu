// ops/shared/register_tile_shared.cuh: between register tiles and shared tiles, over layouts,
// dtypes and groups.
#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;
namespace rt_layout = ducks::rt_layout;
namespace st_layout = ducks::st_layout;

namespace {

template <class S>
KITTENS_DEVICE S& shared_of_block() {
  return shared_allocator<>(arch::dynamic_shared()).template allocate<S>();
}

template <class R, class S>
__global__ void load_one(const float* in, float* out) {
  S& shared = shared_of_block<S>();
  gather(shared, in);
  R tile;
  load(tile, shared);
  scatter(out, tile);
}

template <class R, class S>
__global__ void store_one(const float* in, float* out) {
  S& shared = shared_of_block<S>();
  R tile;
  gather(tile, in);
  store(shared, tile);
  scatter(out, shared);
}

// Random values of the source, which the destination rounds.
template <class R, class S>
void check_both_ways() {
  constexpr int n = R::num_elements;
  const auto rounded = [](const std::vector<float>& in, auto to) {
    return [&](int r, int c) { return round_to<decltype(to)>(in[r * R::cols + c]); };
  };
  const std::vector<float> in_shared = random_tile<S>(1), in_registers = random_tile<R>(2);
  check_tile<R>(run_on_tile(load_one<R, S>, in_shared, n, sizeof(S)),
                rounded(in_shared, typename R::dtype{}));
  check_tile<S>(run_on_tile(store_one<R, S>, in_registers, n, sizeof(S)),
                rounded(in_registers, typename S::dtype{}));
}

TEST(every_layout_and_shape) {
  for_each_register_tile([&]<class R>() {
    check_both_ways<R, st<typename R::dtype, R::rows, R::cols, st_layout::swizzle>>();
    check_both_ways<R, st<typename R::dtype, R::rows, R::cols, st_layout::naive>>();
  });
  check_both_ways<rt_bf<16, 128>, st_bf<16, 128>>();  // two chunks of columns
  check_both_ways<rt_bf<32, 128, rt_layout::col>, st_bf<32, 128>>();
  check_both_ways<rt_fl<16, 96>, st_fl<16, 96>>();
}

// A tile with padding, which is NaNs before a load, and after a store what it was before.
template <class R, class S>
__global__ void load_padded(const float* in, float* out) {
  S& shared = shared_of_block<S>();
  spoil_padding(shared);
  gather(shared, in);
  R tile;
  load(tile, shared);
  scatter(out, tile);
}

template <class R, class S>
__global__ void store_padded(const float* in, float* out) {
  S& shared = shared_of_block<S>();
  gather(with_padding_of(shared), in + R::num_elements);
  R tile;
  gather(tile, in);
  store(shared, tile);
  scatter(out, with_padding_of(shared));
}

template <class R, class S>
void check_padded() {
  using whole = with_padding<S>;
  static_assert(S::padding_cols > 0 && sizeof(whole) == sizeof(S));
  const std::vector<float> in_shared = random_tile<S>(4), before = random_tile<whole>(6);
  std::vector<float> in = random_tile<R>(5);
  in.insert(in.end(), before.begin(), before.end());
  check_tile<R>(run_on_tile(load_padded<R, S>, in_shared, R::num_elements, sizeof(S)),
                [&](int r, int c) { return in_shared[r * S::cols + c]; });
  check_tile<whole>(run_on_tile(store_padded<R, S>, in, whole::num_elements, sizeof(S)),
                    [&](int r, int c) {
                      return c < S::cols ? in[r * S::cols + c] : before[r * whole::cols + c];
                    });
}

TEST(padding_is_left_alone) {
  for_each_dtype([&]<class T>() {
    check_padded<rt<T, 32, 80, rt_layout::row>, st<T, 32, 80, st_layout::swizzle_128>>();
    check_padded<rt<T, 16, 80, rt_layout::col>, st<T, 16, 80, st_layout::swizzle_128>>();
    check_padded<rt<T, 32, 16, rt_layout::row>, st<T, 32, 16, st_layout::swizzle_128>>();
  });
  check_padded<rt_bf<16, 96>, st_bf<16, 96, st_layout::swizzle_128>>();
  check_padded<rt_hf<32, 96, rt_layout::col>, st_hf<32, 96, st_layout::swizzle_128>>();
}

TEST(every_conversion) {
  for_each_dtype([&]<class T>() {
    for_each_dtype([&]<class U>() {
      check_both_ways<rt<T, 16, 32, rt_layout::row>, st<U, 16, 32>>();
      check_both_ways<rt<T, 32, 16, rt_layout::col>, st<U, 32, 16>>();
    });
  });
}

// Below sm_90 there is no stmatrix: plain stores of 16-bit elements.
template <class R, class S>
__global__ void store_plain(const float* in, float* out) {
  S& shared = shared_of_block<S>();
  R tile;
  gather(tile, in);
  detail::store_elements<1>(shared, tile);
  scatter(out, shared);
}

TEST(plain_stores_of_16_bit_elements) {
  for_each_register_tile([&]<class R>() {
    using S = st<bf16, R::rows, R::cols>;
    const std::vector<float> in = random_tile<R>(3);
    check_tile<S>(run_on_tile(store_plain<R, S>, in, R::num_elements, sizeof(S)),
                  [&](int r, int c) { return round_to<bf16>(in[r * R::cols + c]); });
  });
}

// ---- groups: warp w has rows w·rows … of the shared tile

template <class R, class S, int Warps>
__global__ void through_shared(const float* in, float* out) {
  constexpr int kWarpElements = R::num_elements;
  using movement = tile_movement<Warps>;
  auto& tiles = shared_allocator<>(arch::dynamic_shared()).template allocate<S, 2>();
  const int warp = arch::warp_id(), group = warp / Warps;
  R tile;
  gather(tile, in + warp * kWarpElements);
  movement::store(tiles[group], tile);
  arch::sync_block();
  if (warp % Warps == 0) scatter(out + group * S::num_elements, tiles[group]);
  movement::load(tile, tiles[group]);
  scatter(out + 2 * S::num_elements + warp * kWarpElements, tile);
}

template <class R, int Warps, class Layout = st_layout::swizzle>
void check_group() {
  using S = st<bf16, Warps * R::rows, R::cols, Layout>;
  constexpr int n = 2 * S::num_elements;  // of two groups
  const buffer<float> in(exact_values<float>(n)), out(size_t{2 * n});
  run(through_shared<R, S, Warps>,
      {.grid = {1}, .block = {2 * Warps * kWarp}, .shared_bytes = 2 * sizeof(S)}, in.data(),
      out.data());
  for (int i = 0; i < 2 * n; ++i) CHECK_EQUAL(out.get()[i], exact_value(i % n));
}

TEST(the_warps_of_a_group_hold_rows_below_each_other) {
  check_group<rt_fl<16, 64>, 4>();
  check_group<rt_bf<16, 16>, 4>();
  check_group<rt_bf<32, 48, rt_layout::col>, 3>();
  check_group<rt_fl<16, 32, rt_layout::col>, 2>();
  check_group<rt_bf<16, 80>, 4, st_layout::swizzle_128>();
  check_group<rt_bf<16, 96, rt_layout::col>, 2, st_layout::swizzle_128>();
}

// ---- and their vectors

template <class V, int Warps>
__global__ void vectors_through_shared(const float* in, float* out) {
  using movement = tile_movement<Warps>;
  using S = sv<float, Warps * V::length>;
  S& shared = shared_of_block<S>();
  const int first = arch::warp_id() * V::length;
  V v;
  gather(v, in + first);
  movement::store(shared, v);
  arch::sync_block();
  if (arch::warp_id() == 0) store(gl<float>::vector(out, S::length), shared);
  movement::load(v, shared);
  scatter(out + S::length + first, v);
}

template <class V>
void check_group_vectors() {
  constexpr int n = 4 * V::length;
  const buffer<float> in(exact_values<float>(n)), out(size_t{2 * n});
  run(vectors_through_shared<V, 4>,
      {.grid = {1}, .block = {4 * kWarp}, .shared_bytes = n * sizeof(float)}, in.data(),
      out.data());
  for (int i = 0; i < 2 * n; ++i) CHECK_EQUAL(out.get()[i], exact_value(i % n));
}

TEST(vectors_of_a_group) {
  check_group_vectors<rt_fl<16, 64>::col_vec>();
  check_group_vectors<rt_fl<16, 64>::row_vec>();
  check_group_vectors<rt_bf<48, 16, rt_layout::col>::col_vec>();
  check_group_vectors<rv<float, 64, ducks::rv_layout::runs<2>>>();
}

}  // namespace
