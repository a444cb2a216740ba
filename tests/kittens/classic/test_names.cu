// kittens/classic.cuh: each name, beside those of <kittens.cuh>, which comes first here. (What it
// makes of `namespace kittens` where it comes first, the kernels of test_classic.py show.)
#include <kittens.cuh>
#include <kittens/classic.cuh>

#include "tiles.h"

using kittens::testing::buffer;
using kittens::testing::check_tile;
using kittens::testing::exact_value;
using kittens::testing::exact_values;
using kittens::testing::run;

namespace kittens::classic {
namespace {

// ---- types

namespace st_layout = ducks::st_layout;
namespace rt_layout = ducks::rt_layout;

template <class A, class B>
constexpr bool same = std::is_same_v<A, B>;

static_assert(TILE_DIM == 16 && WARP_THREADS == 32 && WARPGROUP_WARPS == 4 &&
              WARPGROUP_THREADS == 128 && MAX_SHARED_MEMORY == 227000);

static_assert(same<rt_bf<1, 4>, rt<bf16, 16, 64>> && same<rt_hf<2, 3>, rt<half, 32, 48>> &&
              same<rt_fl<1, 8>, rt<float, 16, 128>>);
static_assert(same<rt_bf<1, 4, rt_layout::col>, rt<bf16, 16, 64, rt_layout::col>> &&
              same<rt_hf<2, 3, rt_layout::col>, rt<half, 32, 48, rt_layout::col>> &&
              same<rt_fl<1, 8, rt_layout::col>, rt<float, 16, 128, rt_layout::col>>);
static_assert(same<st_bf<4, 4>, st<bf16, 64, 64>> && same<st_hf<2, 3>, st<half, 32, 48>> &&
              same<st_fl<1, 8>, st<float, 16, 128>>);
static_assert(same<st_bf<4, 4, st_layout::naive>, st<bf16, 64, 64, st_layout::naive>> &&
              same<st_hf<2, 3, st_layout::naive>, st<half, 32, 48, st_layout::naive>> &&
              same<st_fl<1, 8, st_layout::naive>, st<float, 16, 128, st_layout::naive>>);
static_assert(same<sv_bf<4>, sv<bf16, 64>> && same<sv_hf<1>, sv<half, 16>> &&
              same<sv_fl<2>, sv<float, 32>>);

// Beside them, those of <kittens.cuh>.
static_assert(same<kittens::rt_fl<16, 128>, rt_fl<1, 8>> &&
              same<kittens::st_bf<64, 64>, in_elements::st_bf<64, 64>>);
static_assert(same<kittens::warpgroup, group<4>> && !same<warpgroup, group<4>>);

static_assert(same<st_layout::wgmma_swizzle, st_layout::swizzle> &&
              same<st_layout::wgmma_interleave, st_layout::swizzle> &&
              same<st_layout::xor_swizzle, st_layout::swizzle>);
static_assert(same<row_vec<rt_fl<1, 8>>, rt_fl<1, 8>::row_vec> &&
              same<col_vec<rt_fl<1, 8>>, rt_fl<1, 8>::col_vec> &&
              same<col_vec<st_bf<4, 2>>, sv_bf<4>> && same<row_vec<st_bf<4, 2>>, sv_bf<2>>);
static_assert(same<tma_swizzle_allocator, shared_allocator<1024>>);
static_assert(same<tma::barrier, uint64_t>);
static_assert(size_bytes<st_bf<4, 4>> == 8192 && size_bytes<st_bf<4, 4>, sv_fl<1>[3]> == 8384);
static_assert(detail::transfer_bytes<st_bf<4, 4>>::bytes == 8192 &&
              detail::transfer_bytes<st_bf<4, 4>, 2, 3>::bytes == 6 * 8192);

template <class T>
__global__ void constants_of(float* out) {
  using constants = base_types::constants<T>;
  const T values[] = {constants::zero(), constants::one(), constants::pos_infty(),
                      constants::neg_infty()};
  for (int i = 0; i < 4; ++i) out[i] = convert<float>(values[i]);
}

template <class T>
void check_constants() {
  const buffer<float> out(4);
  run(constants_of<T>, {.grid = {1}, .block = {1}}, out.data());
  CHECK((out.get() == std::vector<float>{0.0f, 1.0f, kInfinity, -kInfinity}));
}

// ---- barriers

// Each thread arrives, 31 of them once and the first one twice: nobody passes before.
__global__ void meet(int* out) {
  auto& barrier = *reinterpret_cast<uint64_t*>(arch::dynamic_shared());
  auto& number = *reinterpret_cast<int*>(arch::dynamic_shared() + 64);
  tma::init_barrier(barrier, 33);
  arch::sync_warp();
  for (int phase = 0; phase < 3; ++phase) {
    if (laneid() == 31) number = 10 + phase;
    if (laneid() == 0) {
      arrive(barrier, 2);
    } else {
      arrive(barrier);
    }
    wait(barrier, phase % 2);
    out[phase * 32 + laneid()] = number;
    arch::sync_warp();
  }
}

// ---- tensor maps and TMA, called by a whole warp, of which only the first lane has the map

constexpr int kDown = 3, kAcross = 2;  // tiles of a matrix

// The number of element (r, c) of tile (i, j).
template <class Tile>
int element(int i, int j, int r, int c) {
  return (i * Tile::rows + r) * kAcross * Tile::cols + j * Tile::cols + c;
}

// Four tiles in one phase, and one more in the next.
template <class Tile>
__global__ void fetch(const CUtensorMap* map, float* out) {
  tma_swizzle_allocator al(reinterpret_cast<int*>(arch::dynamic_shared()));
  Tile(&tiles)[2][2] = al.allocate<Tile, 2, 2>();
  auto& full = al.allocate<tma::barrier>();
  tma::init_barrier<Tile, 2, 2>(full);
  arch::sync_warp();
  if (laneid() > 0) map = nullptr;
  tma::prefetch(tiles[0][0], map, 2);
  tma::prefetch(tiles[0][0], map, 2, 1);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      tma::load_async(tiles[i][j], map, full, i, j);
    }
  }
  tma::arrive_and_wait(full, 0);
  for (int i = 0; i < 4; ++i) {
    testing::scatter(out + i * Tile::num_elements, tiles[i / 2][i % 2]);
  }
  arch::fence_async_proxy();
  arch::sync_warp();
  tma::set_bytes(full, size_bytes<Tile>);
  tma::load_async(tiles[0][0], map, full, 2);
  tma::arrive_and_wait(full, 1);
  testing::scatter(out + 4 * Tile::num_elements, tiles[0][0]);
}

// A tile to (1, 0) and to (2, 1), and added to (0, 0) and (0, 1).
template <class Tile>
__global__ void deliver(const float* in, CUtensorMap* map) {
  tma_swizzle_allocator al(reinterpret_cast<int*>(arch::dynamic_shared()));
  Tile& tile = al.allocate<Tile>();
  if (laneid() > 0) map = nullptr;
  testing::gather(tile, in);
  arch::fence_async_proxy();
  arch::sync_warp();
  tma::store_async(map, tile, 1);
  tma::store_async(map, tile, 2, 1);
  tma::store_add_async(map, tile, 0);
  tma::store_add_async(map, tile, 0, 1);
  tma::store_commit_group();
  tma::store_async_wait();
}

void give_back(CUtensorMap* map) {
#if KITTENS_SIMULATED
  delete map;
#else
  cudaFree(map);
#endif
}

template <class Tile>
constexpr size_t kMatrix = size_t{kDown} * kAcross * Tile::num_elements;

template <class Tile>
void check_loads() {
  using T = typename Tile::dtype;
  const auto values = exact_values<T>(kMatrix<Tile>);
  const buffer<T> in(values);
  const buffer<float> out(size_t{5} * Tile::num_elements);
  CUtensorMap* map = tma::allocate_and_create_tensor_map<Tile>(in.data(), kDown, kAcross);
  run(fetch<Tile>, {.grid = {1}, .block = {32}, .shared_bytes = 4 * sizeof(Tile) + 64}, map,
      out.data());
  give_back(map);
  const std::vector<float> got = out.get();
  for (int t = 0; t < 5; ++t) {
    const auto first = got.begin() + t * Tile::num_elements;
    check_tile<Tile>({first, first + Tile::num_elements}, [&](int r, int c) {
      return convert<float>(values[element<Tile>(t / 2, t % 2, r, c)]);
    });
  }
}

template <class Tile>
void check_stores() {
  using T = typename Tile::dtype;
  const std::vector<T> before(kMatrix<Tile>, convert<T>(2.0f));
  const buffer<T> out(before);
  const buffer<float> in(testing::exact_tile<Tile>());
  CUtensorMap map;
  tma::create_tensor_map<Tile>(&map, out.data(), kDown, kAcross);
  CUtensorMap* on_device = host::tensor_map_on_device(map);
  run(deliver<Tile>, {.grid = {1}, .block = {32}, .shared_bytes = sizeof(Tile)}, in.data(),
      on_device);
  give_back(on_device);
  const std::vector<T> got = out.get();
  for (int t = 0; t < kDown * kAcross; ++t) {
    const bool stored = t == 2 || t == 5, added = t < 2;
    for (int i = 0; i < Tile::num_elements; ++i) {
      const float value = exact_value(i);
      const T want = convert<T>(stored ? value : added ? 2.0f + value : 2.0f);
      const int at = element<Tile>(t / 2, t % 2, i / Tile::cols, i % Tile::cols);
      CHECK_EQUAL(convert<float>(got[at]), convert<float>(want));
    }
  }
}

// ---- a warpgroup's older names

// d = 2·a·b, in one block; b in the layout of the literature's right factors.
__global__ __launch_bounds__(128, 1) void product(const bf16* a, const bf16* b, float* d) {
  using b_type = st_bf<4, 2, st_layout::wgmma_interleave>;
  tma_swizzle_allocator al(reinterpret_cast<int*>(arch::dynamic_shared()));
  auto& a_tile = al.allocate<st_bf<4, 4, st_layout::wgmma_swizzle>>();
  auto& b_tile = al.allocate<b_type>();
  warpgroup::decrease_registers<72>();
  warpgroup::increase_registers<96>();
  warpgroup::decrease_registers<88>();
  warpgroup::load(a_tile, a, 64);
  warpgroup::load(b_tile, b, 32);
  warpgroup::mul(a_tile, a_tile, __float2bfloat16(2.0f));
  arch::sync_block();
  rt_fl<1, 2> result;
  warpgroup::fence(result);
  warpgroup::mm_AB(result, a_tile, b_tile);
  warpgroup::commit_group();
  warpgroup::async_wait();
  warpgroup::store(d, result, 32);
}

// The same in the words of <kittens.cuh>.
__global__ void product_in_elements(const bf16* a, const bf16* b, float* d) {
  tma_allocator al(reinterpret_cast<int*>(arch::dynamic_shared()));
  auto& a_tile = al.allocate<in_elements::st_bf<64, 64>>();
  auto& b_tile = al.allocate<in_elements::st_bf<64, 32>>();
  using kittens::in_elements::warpgroup;
  warpgroup::load(a_tile, a, 64);
  warpgroup::load(b_tile, b, 32);
  warpgroup::mul(a_tile, a_tile, 2.0f);
  arch::sync_block();
  in_elements::rt_fl<16, 32> result;
  warpgroup::mma_fence(result);
  warpgroup::mm_AB(result, a_tile, b_tile);
  warpgroup::mma_commit_group();
  warpgroup::mma_async_wait();
  warpgroup::store(d, result, 32);
}

void check_product(void (*kernel)(const bf16*, const bf16*, float*)) {
  std::vector<bf16> a, b;  // of which float holds every sum of products
  for (int i = 0; i < 64 * 64; ++i) a.push_back(convert<bf16>(float(i % 7 - 3)));
  for (int i = 0; i < 64 * 32; ++i) b.push_back(convert<bf16>(float(i % 5 - 2)));
  const buffer<bf16> a_buffer(a), b_buffer(b);
  const buffer<float> d_buffer(64 * 32);
  run(kernel, {.grid = {1}, .block = {128}, .shared_bytes = size_bytes<st_bf<4, 4>, st_bf<4, 2>>},
      a_buffer.data(), b_buffer.data(), d_buffer.data());
  const std::vector<float> d = d_buffer.get();
  for (int i = 0; i < 64 * 32; ++i) {
    float want = 0.0f;
    for (int k = 0; k < 64; ++k) {
      want += 2.0f * convert<float>(a[i / 32 * 64 + k]) * convert<float>(b[k * 32 + i % 32]);
    }
    CHECK_EQUAL(d[i], want);
  }
}

}  // namespace

TEST(constants) {
  check_constants<float>();
  check_constants<bf16>();
  check_constants<half>();
}

TEST(barriers_count_arrivals) {
  const buffer<int> out(std::vector<int>(3 * 32, 0));
  run(meet, {.grid = {1}, .block = {32}, .shared_bytes = 128}, out.data());
  const std::vector<int> got = out.get();
  for (int i = 0; i < 3 * 32; ++i) CHECK_EQUAL(got[i], 10 + i / 32);
}

TEST(tiles_are_loaded_by_row_and_column) {
  check_loads<st_bf<4, 4, st_layout::wgmma_swizzle>>();
  check_loads<st_bf<2, 8, st_layout::wgmma_interleave>>();
  check_loads<st_hf<1, 3>>();
  check_loads<st_fl<2, 2>>();
}

TEST(tiles_are_stored_and_added_by_row_and_column) {
  check_stores<st_bf<4, 4, st_layout::wgmma_swizzle>>();
  check_stores<st_bf<2, 8>>();
  check_stores<st_fl<2, 2>>();
}

TEST(a_tensor_that_tma_cannot_take_is_refused) {
  const buffer<bf16> x(size_t{64 * 64 + 8});
  CUtensorMap map;
  const std::string said =
      testing::error_of([&] { tma::create_tensor_map<st_bf<4, 4>>(&map, x.data() + 1, 1); });
  CHECK_CONTAINS(said, "tensor map: data must be aligned to 16 bytes");
}

TEST(a_warpgroup_has_its_older_names) { check_product(product); }
TEST(both_spellings_make_one_product) { check_product(product_in_elements); }

}  // namespace kittens::classic
