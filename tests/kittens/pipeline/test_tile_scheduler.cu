// pipeline/tile_scheduler.cuh and pipeline/turns.cuh: every tile once, in order; turn after turn.
#include <set>
#include <tuple>

#include <kittens.cuh>
#include "harness.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

std::vector<std::tuple<int, int, int>> places(const tile_scheduler& tiles) {
  std::vector<std::tuple<int, int, int>> all;
  for (int i = 0; i < tiles.count(); ++i) {
    const auto [m, head, batch] = tiles.place(i);
    all.emplace_back(batch, head, m);
  }
  return all;
}

TEST(rows_run_fastest_then_heads) {
  const tile_scheduler tiles{.rows = 3, .heads = 2, .batches = 2};
  const auto all = places(tiles);
  CHECK_EQUAL(all.size(), 12u);
  CHECK(std::is_sorted(all.begin(), all.end()));
  CHECK((all[5] == std::tuple(0, 1, 2)));
  CHECK((all[6] == std::tuple(1, 0, 0)));
}

TEST(the_last_row_comes_first_when_asked) {
  const tile_scheduler tiles{.rows = 3, .heads = 2, .batches = 1, .last_first = true};
  const auto all = places(tiles);
  CHECK((all[0] == std::tuple(0, 0, 2)));
  CHECK((all[2] == std::tuple(0, 0, 0)));
  CHECK((all[3] == std::tuple(0, 1, 2)));
}

TEST(pairs_that_go_together_take_their_rows_in_step) {
  for (const int together : {1, 2, 4, 5, 6, 100}) {
    const tile_scheduler tiles{
        .rows = 5, .heads = 3, .batches = 2, .last_first = true, .together = together};
    const auto all = places(tiles);
    CHECK_EQUAL(std::set(all.begin(), all.end()).size(), 30u);
    int before = 0;  // the row of the tile before, within a section
    for (size_t i = 0; i < all.size(); ++i) {
      const auto [batch, head, m] = all[i];
      CHECK(m >= 0 && m < 5 && head >= 0 && head < 3 && batch >= 0 && batch < 2);
      const int pair = batch * 3 + head, section = static_cast<int>(i) / (5 * together);
      CHECK_EQUAL(pair / together, section);
      if (i % (5 * together) != 0) CHECK(m <= before);
      before = m;
    }
  }
}

__global__ void walk(const __grid_constant__ tile_scheduler tiles, int* visits) {
  for (tile_walk tile(tiles); tile.valid(); tile.next()) {
    const auto [m, head, batch] = tile.place();
    if (arch::thread_id() == 0) ++visits[(batch * tiles.heads + head) * tiles.rows + m];
  }
}

TEST(blocks_share_the_tiles) {
  for (const int blocks : {1, 4, 7, 42, 50}) {
    buffer<int> visits(std::vector<int>(42, 0));
    run(walk, {.grid = {blocks}, .block = {32}}, {.rows = 7, .heads = 3, .batches = 2},
        visits.data());
    for (const int n : visits.get()) CHECK_EQUAL(n, 1);
  }
}

// A block's warpgroups write their numbers to a list, each in its turn.
template <int N>
__global__ void sign_in_turn(int* list, int rounds) {
  const int w = warpgroupid();
  auto& length = *reinterpret_cast<volatile int*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) length = 0;
  using turn = turns<N, 3>;
  for (int again = 0; again < 2; ++again) {
    arch::sync_block();
    turn::start(w);
    for (int i = 0; i < rounds; ++i) {
      turn::wait(w);
      if (arch::thread_id() % 128 == 0) {
        list[length] = w;
        length = length + 1;
      }
      turn::pass(w);
    }
    turn::finish(w);
  }
}

template <int N>
void check_turns() {
  constexpr int kRounds = 4;
  buffer<int> list(2 * kRounds * N);
  run(sign_in_turn<N>, {.grid = {1}, .block = {128 * N}, .shared_bytes = 16}, list.data(), kRounds);
  const std::vector<int> got = list.get();
  for (int i = 0; i < 2 * kRounds * N; ++i) CHECK_EQUAL(got[i], i % N);
}

TEST(warpgroups_take_turns) {
  check_turns<1>();
  check_turns<2>();
  check_turns<3>();
}

}  // namespace
