// ops/group.cuh and types/scope.cuh: who is who in a group, its barrier, and tiles that it moves.
#include "tiles.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

template <int Warps>
__global__ void names(int* out) {
  using scope = group<Warps>;
  int* mine = out + 7 * arch::thread_id();
  const int names[] = {laneid(),        warpid(),        warpgroupid(),
                       scope::laneid(), scope::warpid(), scope::groupid()};
  for (int i = 0; i < 6; ++i) mine[i] = names[i];
  mine[6] = scope::threads;
}

template <int Warps>
void check_names() {
  constexpr int kThreads = 384;
  buffer<int> out(7 * kThreads);
  run(names<Warps>, {.grid = {1}, .block = {kThreads}}, out.data());
  const std::vector<int> got = out.get();
  for (int t = 0; t < kThreads; ++t) {
    const int n = 32 * Warps;
    const int want[] = {t % 32, t / 32, t / 128, t % n, t / 32 % Warps, t / n, n};
    for (int i = 0; i < 7; ++i) CHECK_EQUAL(got[7 * t + i], want[i]);
  }
}

TEST(threads_know_their_place) {
  check_names<1>();
  check_names<2>();
  check_names<4>();
  check_names<12>();
}

// Each group moves its tile through shared memory to registers and, doubled, back. What a warp
// reads there, others of its group wrote.
template <int Warps>
__global__ void doubles(gl<float> in, gl<bf16> out) {
  using scope = group<Warps>;
  using tile = st_bf<16 * Warps, 32>;
  auto* tiles = reinterpret_cast<tile*>(arch::dynamic_shared());
  const int g = scope::groupid();
  rt_bf<16, 32> rows;
  scope::load(tiles[g], in, {0, 0, g, 0});
  scope::sync(1 + g);
  scope::load(rows, tiles[g]);
  add(rows, rows, rows);
  scope::sync(1 + g);
  scope::store(tiles[g], rows);
  scope::sync(1 + g);
  scope::store(out, tiles[g], {0, 0, g, 0});
}

template <int Warps>
void check_doubles() {
  constexpr int kGroups = 8 / Warps, kRows = 16 * 8;
  const std::vector<float> values = testing::exact_tile<rt_fl<kRows, 32>>();
  const buffer<float> in(values);
  const buffer<bf16> out(size_t{kRows * 32});
  run(doubles<Warps>,
      {.grid = {1}, .block = {32 * Warps * kGroups}, .shared_bytes = kRows * 32 * 2},
      gl<float>::matrix(in.data(), kRows, 32, 32), gl<bf16>::matrix(out.data(), kRows, 32, 32));
  const std::vector<bf16> got = out.get();
  for (int i = 0; i < kRows * 32; ++i) CHECK_EQUAL(convert<float>(got[i]), 2 * values[i]);
}

TEST(groups_move_tiles_of_their_own) {
  check_doubles<1>();
  check_doubles<2>();
  check_doubles<4>();
  check_doubles<8>();
}

}  // namespace
