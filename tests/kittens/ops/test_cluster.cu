// ops/cluster.cuh: tiles and vectors of a cluster's other blocks.
#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::gather;
using testing::run;
using testing::scatter;

namespace {

constexpr int kRows = 64, kCols = 32;

template <class T>
struct shared {
  st<T, kRows, kCols> own, got;
  sv<T, kRows> own_vector, got_vector;
  semaphore full;
};

// in: a tile and a vector of each block; out: of each block the tile and the vector of the next
// one, which come by the way that Way says.
enum way { kLoadRegisters, kStoreRegisters, kLoadShared, kStoreShared, kCopyAsync, kWays };

template <int Warps, class R, int Way>
__global__ void moves(const float* in, float* out) {
  using T = typename R::dtype;
  using scope = group<Warps>;
  auto& s = *reinterpret_cast<shared<bf16>*>(arch::dynamic_shared());
  const int n = scope::cluster::blocks(), rank = scope::cluster::rank();
  const int next = (rank + 1) % n, before = (rank + n - 1) % n;
  constexpr int kElements = kRows * kCols + kRows;
  in += arch::block_x() * kElements;
  out += arch::block_x() * kElements;
  scope::load(s.own, in, kCols);
  for (int i = arch::thread_id(); i < kRows; i += arch::block_threads()) {
    s.own_vector.data[i] = convert<bf16>(in[kRows * kCols + i]);
  }
  arch::fence_async_proxy();  // of the vector, for the copy
  if (arch::thread_id() == 0) init_semaphore(s.full, 1);
  scope::cluster::sync();
  R tile;
  rv<T, kRows / Warps, typename R::col_vec::layout> vector;
  if constexpr (Way == kLoadRegisters) {
    scope::cluster::load(tile, s.own, next);
    scope::cluster::load(vector, s.own_vector, next);
    scope::store(s.got, tile);
    scope::store(s.got_vector, vector);
  } else if constexpr (Way == kStoreRegisters) {
    scope::load(tile, s.own);
    scope::load(vector, s.own_vector);
    scope::cluster::store(s.got, tile, before);
    scope::cluster::store(s.got_vector, vector, before);
  } else if constexpr (Way == kLoadShared) {
    scope::cluster::load(s.got, s.own, next);
    scope::cluster::load(s.got_vector, s.own_vector, next);
  } else if constexpr (Way == kStoreShared) {
    scope::cluster::store(s.got, s.own, before);
    scope::cluster::store(s.got_vector, s.own_vector, before);
  } else if (arch::thread_id() == 0) {
    expect_bytes(s.full, sizeof s.got + sizeof s.got_vector);
    scope::cluster::copy_async(s.got, s.own, s.full, before);
    scope::cluster::copy_async(s.got_vector, s.own_vector, s.full, before);
  }
  if constexpr (Way == kCopyAsync) scope::cluster::wait(s.full, 0);
  scope::cluster::arrive();
  scope::cluster::wait();
  scope::store(out, s.got, kCols);
  for (int i = arch::thread_id(); i < kRows; i += arch::block_threads()) {
    out[kRows * kCols + i] = convert<float>(s.got_vector.data[i]);
  }
}

template <int Warps, class R, int Way>
void check_move() {
  constexpr int kBlocks = 6, kCluster = 3, kElements = kRows * kCols + kRows;
  std::vector<float> values;
  for (int i = 0; i < kBlocks * kElements; ++i) {
    values.push_back(testing::exact_value(i + 13 * (i / kElements)));
  }
  const buffer<float> in(values), out(values.size());
  run(moves<Warps, R, Way>,
      {.grid = {kBlocks},
       .block = {kWarp * Warps},
       .shared_bytes = sizeof(shared<bf16>),
       .cluster = kCluster},
      in.data(), out.data());
  const std::vector<float> got = out.get();
  for (int i = 0; i < kBlocks * kElements; ++i) {
    const int block = i / kElements, first = block / kCluster * kCluster;
    const int next = first + (block - first + 1) % kCluster;
    CHECK_EQUAL(got[i], values[next * kElements + i % kElements]);
  }
}

template <int Way>
void check_way() {
  check_move<1, rt_fl<kRows, kCols>, Way>();
  check_move<1, rt_bf<kRows, kCols, ducks::rt_layout::col>, Way>();
  check_move<4, rt_bf<kRows / 4, kCols>, Way>();
  check_move<2, rt_hf<kRows / 2, kCols, ducks::rt_layout::col>, Way>();
}

TEST(registers_load_from_the_next_block) { check_way<kLoadRegisters>(); }
TEST(registers_store_to_the_block_before) { check_way<kStoreRegisters>(); }
TEST(shared_tiles_load_from_the_next_block) { check_way<kLoadShared>(); }
TEST(shared_tiles_store_to_the_block_before) { check_way<kStoreShared>(); }
TEST(copies_run_beside_the_threads) { check_way<kCopyAsync>(); }

// Stores, an arrival there and a wait here; no barrier of the cluster.
__global__ void hands_over(const float* in, float* out) {
  struct mailbox {
    st_fl<16, 32> tile;
    semaphore full;
  };
  auto& box = *reinterpret_cast<mailbox*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) init_semaphore(box.full, 1);
  cluster::sync();
  rt_fl<16, 32> tile;
  const int other = 1 - cluster::rank();
  gather(tile, in + arch::block_x() * 16 * 32);
  cluster::store(box.tile, tile, other);
  arch::sync_warp();
  if (laneid() == 0) cluster::arrive(box.full, other);
  cluster::wait(box.full, 0);
  scatter(out + arch::block_x() * 16 * 32, box.tile);
  cluster::sync();
}

TEST(an_arrival_hands_a_tile_over) {
  const std::vector<float> values = testing::exact_tile<rt_fl<32, 32>>();
  const buffer<float> in(values), out(values.size());
  run(hands_over, {.grid = {2}, .block = {32}, .shared_bytes = 4096, .cluster = 2}, in.data(),
      out.data());
  const std::vector<float> got = out.get();
  for (int i = 0; i < 16 * 32; ++i) {
    CHECK_EQUAL(got[i], values[i + 16 * 32]);
    CHECK_EQUAL(got[i + 16 * 32], values[i]);
  }
}

}  // namespace
